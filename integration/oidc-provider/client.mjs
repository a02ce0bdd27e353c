// A certified OpenID client (npm openid-client) that uses an issuer as any stock client does, and
// acts as the person at the browser too. It prints one JSON line for each step that succeeds and
// ends at the first failure. The certified provider next to it tests the other direction.
import * as client from 'openid-client';

const [issuer, clientId, redirectUri, email, password] = process.argv.slice(2);
const told = (step, what = {}) => console.log(JSON.stringify({ step, ...what }));
const must = (truth, what) => {
  if (!truth) throw new Error(what);
};

// The browser: one cookie at a time is enough here.
const go = async (url, form, cookie) => {
  const headers = { ...(cookie && { cookie }), ...(form && { origin: new URL(issuer).origin }) };
  const body = form && new URLSearchParams(form);
  const answer = await fetch(new URL(url, issuer), { method: form ? 'POST' : 'GET', headers, body, redirect: 'manual' });
  const set = answer.headers.getSetCookie().find((line) => line.includes('tenant-login-'));
  return { status: answer.status, to: answer.headers.get('location'), cookie: set?.split(';')[0] ?? cookie };
};
const handle = (to) => new URL(to, issuer).searchParams.get('request');
const signIn = async (start) => {
  must(start.status === 303, `no sign-in page but ${start.status}`);
  return go('/login', { request: handle(start.to), email, password }, start.cookie);
};

const config = await client.discovery(new URL(issuer), clientId, undefined, client.None(), {
  execute: [client.allowInsecureRequests],
});
told('discovery', { pkce: config.serverMetadata().supportsPKCE() });

const verifier = client.randomPKCECodeVerifier();
const [state, nonce] = [client.randomState(), client.randomNonce()];
const url = client.buildAuthorizationUrl(config, {
  redirect_uri: redirectUri,
  scope: 'openid email offline_access',
  code_challenge: await client.calculatePKCECodeChallenge(verifier),
  code_challenge_method: 'S256',
  state,
  nonce,
});
const back = await signIn(await go(url));
const checks = { pkceCodeVerifier: verifier, expectedState: state, expectedNonce: nonce, idTokenExpected: true };
let tokens = await client.authorizationCodeGrant(config, new URL(back.to), checks);
told('code', { email: tokens.claims().email });

const me = await client.fetchUserInfo(config, tokens.access_token, tokens.claims().sub);
told('userinfo', { email: me.email });
tokens = await client.refreshTokenGrant(config, tokens.refresh_token);
must(tokens.refresh_token && tokens.claims().sub === me.sub, 'the refresh gave something else');
told('refresh');
await client.tokenRevocation(config, tokens.refresh_token);
const after = await client.refreshTokenGrant(config, tokens.refresh_token).catch((error) => error.error);
must(after === 'invalid_grant', `after the revocation: ${after}`);
told('revocation');

const device = await client.initiateDeviceAuthorization(config, { scope: 'openid email offline_access' });
const asked = await go('/device', { user_code: device.user_code });
await signIn(asked);
await go('/login/device', { request: handle(asked.to), decision: 'allow' }, asked.cookie);
const there = await client.pollDeviceAuthorizationGrant(config, { ...device, interval: 0.1 });
told('device', { email: there.claims().email });
