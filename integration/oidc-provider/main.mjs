// An OpenID provider for the tests: the certified library, with people that can be changed at
// runtime, keys that are rotated on command, and responses that can be corrupted on purpose.
//
// `node main.mjs` listens on a free port of 127.0.0.1 and prints `ready: URL`. `POST
// /control/COMMAND` with a JSON body runs the commands below.

import { createHmac, createPublicKey, generateKeyPairSync, randomUUID, sign } from 'node:crypto';
import { createServer } from 'node:http';
import Provider from 'oidc-provider';
import { Memory } from './memory.mjs';

let issuer;
const MONTH = 30 * 24 * 3600;

const state = {
  users: {},
  clients: [],
  keys: [],
  // Every request is answered with this status instead, if there is one.
  outage: null,
  // Whether a client gets refresh tokens, and whether claims are in the ID token.
  refreshTokens: true,
  claimsInIdToken: false,
  // What is changed in the ID token of the next answer of the token endpoint.
  spoil: null,
  // How often each path was asked for.
  counts: {},
};
let provider;
let answer;

function newKey(kty) {
  const { privateKey } = kty === 'EC'
    ? generateKeyPairSync('ec', { namedCurve: 'P-256' })
    : generateKeyPairSync('rsa', { modulusLength: 2048 });
  const alg = kty === 'EC' ? 'ES256' : 'RS256';
  return { privateKey, alg, jwk: { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), alg, use: 'sig' } };
}

function build() {
  provider = new Provider(issuer, {
    adapter: Memory,
    clients: state.clients.map((client) => ({
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      id_token_signed_response_alg: state.keys[0].alg,
      ...client,
    })),
    jwks: { keys: state.keys.map((key) => key.jwk) },
    pkce: { required: () => true },
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name', 'preferred_username'], groups: ['groups'] },
    scopes: ['openid', 'offline_access', 'email', 'profile', 'groups'],
    conformIdTokenClaims: !state.claimsInIdToken,
    findAccount: async (_, id) => state.users[id] && { accountId: id, claims: async () => ({ sub: id, ...state.users[id] }) },
    features: { devInteractions: { enabled: true }, backchannelLogout: { enabled: true }, rpInitiatedLogout: { enabled: true } },
    rotateRefreshToken: true,
    issueRefreshToken: async () => state.refreshTokens,
    // Longer than a test's clock moves.
    ttl: { AccessToken: MONTH, IdToken: MONTH, RefreshToken: MONTH, Session: MONTH, Grant: MONTH, Interaction: 600, AuthorizationCode: 60 },
    // The library's own dispatcher refuses loopback addresses, where everything of a test is.
    fetch: (url, { dispatcher, ...options }) => globalThis.fetch(url, options),
    cookies: { keys: ['a key of the tests'] },
  });
  provider.use(async (ctx, next) => {
    await next();
    if (ctx.path === '/token' && state.spoil && ctx.body?.id_token) {
      ctx.body = { ...ctx.body, id_token: spoilt(ctx.body.id_token, state.spoil) };
      state.spoil = null;
    }
  });
  answer = provider.callback();
}

const encode = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');

function signed(header, claims, key = state.keys[0]) {
  const input = `${encode(header)}.${encode(claims)}`;
  if (header.alg === 'none') return `${input}.`;
  if (header.alg === 'HS256') {
    // The classic confusion: the public key, as everybody can read it, is the shared secret.
    const secret = createPublicKey(key.privateKey).export({ type: 'spki', format: 'pem' });
    return `${input}.${createHmac('sha256', secret).update(input).digest('base64url')}`;
  }
  const options = header.alg === 'ES256' ? { dsaEncoding: 'ieee-p1363' } : {};
  return `${input}.${sign('sha256', Buffer.from(input), { key: key.privateKey, ...options }).toString('base64url')}`;
}

// A token with other header fields and claims; `null` takes a claim away. `foreign` signs with a
// key that nobody knows.
function spoilt(token, { header = {}, claims = {}, foreign = false }) {
  const [oldHeader, oldClaims] = token.split('.', 2).map((part) => JSON.parse(Buffer.from(part, 'base64url')));
  return made({ header: { ...oldHeader, ...header }, claims: { ...oldClaims, ...claims }, foreign });
}

function made({ header = {}, claims = {}, foreign = false }) {
  const key = foreign ? newKey(state.keys[0].jwk.kty) : state.keys[0];
  const kept = Object.fromEntries(Object.entries(claims).filter(([, value]) => value !== null));
  return signed({ alg: key.alg, kid: state.keys[0].jwk.kid, ...header }, kept, key);
}

const commands = {
  // {name: {groups, email, …}}; a name with null is removed.
  users(users) {
    Object.assign(state.users, users);
    for (const [name, user] of Object.entries(users)) if (user === null) delete state.users[name];
  },
  clients(clients) {
    state.clients = clients;
    build();
  },
  // {kty: "RSA" | "EC", keep: bool}: a new key signs; the old ones stay published or do not.
  rotate({ kty = 'RSA', keep = false }) {
    state.keys = [newKey(kty), ...(keep ? state.keys : [])];
    build();
  },
  set(values) {
    Object.assign(state, values);
    build();
  },
  spoil(how) {
    state.spoil = how;
  },
  sign(what) {
    return { token: made(what) };
  },
  counts() {
    return state.counts;
  },
  // {client, subject, sid}: what a provider does when somebody signs out there.
  async logout({ client, subject, sid }) {
    const found = await provider.Client.find(client);
    await found.backchannelLogout(subject, sid);
  },
};

async function control(request, response) {
  const name = new URL(request.url, issuer).pathname.slice('/control/'.length);
  try {
    let text = '';
    for await (const chunk of request) text += chunk;
    const result = await commands[name](text ? JSON.parse(text) : {});
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(result ?? {}));
  } catch (error) {
    response.writeHead(500).end(String(error?.stack ?? error));
  }
}

const server = createServer((request, response) => {
  const path = new URL(request.url, issuer).pathname;
  if (path.startsWith('/control/')) return control(request, response);
  state.counts[path] = (state.counts[path] ?? 0) + 1;
  if (state.outage) return response.writeHead(state.outage).end('out of order');
  return answer(request, response);
});
server.listen(0, '127.0.0.1', () => {
  issuer = `http://127.0.0.1:${server.address().port}`;
  state.keys = [newKey('RSA')];
  build();
  console.log(`ready: ${issuer}`);
});
