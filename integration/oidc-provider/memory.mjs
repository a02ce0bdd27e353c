// The provider's storage: the memory of this process. Two providers, one before and one after a
// change of configuration, share it, so that tokens outlive the change.

const kept = new Map();
const grants = new Map();

export class Memory {
  constructor(model) {
    this.model = model;
  }

  key(id) {
    return `${this.model}:${id}`;
  }

  async upsert(id, payload) {
    kept.set(this.key(id), payload);
    if (payload.grantId) {
      grants.set(payload.grantId, [...(grants.get(payload.grantId) ?? []), this.key(id)]);
    }
  }

  async find(id) {
    return kept.get(this.key(id));
  }

  async findByUid(uid) {
    return [...kept].find(([key, value]) => key.startsWith(`${this.model}:`) && value.uid === uid)?.[1];
  }

  async findByUserCode() {
    return undefined;
  }

  async consume(id) {
    const payload = kept.get(this.key(id));
    if (payload) payload.consumed = Math.floor(Date.now() / 1000);
  }

  async destroy(id) {
    kept.delete(this.key(id));
  }

  async revokeByGrantId(grantId) {
    for (const key of grants.get(grantId) ?? []) kept.delete(key);
    grants.delete(grantId);
  }
}
