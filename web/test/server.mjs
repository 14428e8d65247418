// A server with the answers of the API and no fleet behind them, for the tests of the page and for working on it:
//   npm run server -- [--fleet small|large|empty] [--port 8090] [--token SECRET]
// Serves dist/ with the content security policy of the real server, and can lose connections, be away and ask for a token.
import { createHash } from 'node:crypto';
import { readFileSync, existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { empty_fleet, history_of, large_fleet, small_fleet, status_of, tick } from './fleet.mjs';

const types = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml' };
// As src/http sends it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const session_secret = 'second';

async function body_of(request) {
  let body = '';
  for await (const piece of request) body += piece;
  return JSON.parse(body);
}

export class Server {
  #streams = new Set();
  #readers = new Set();
  #sockets = new Set();
  requests = []; // paths, in order
  tries = 0; // connections, also those refused
  changes = []; // bodies of changes, with their path
  plan = {}; // actions and pending of every plan
  plan_more = {};
  refused = undefined; // { status, code, message, advice }: every change, and every log, is refused with it
  failing = undefined; // a sentence: every answer of the API is 503 with it
  away = false; // every connection is closed without an answer
  logs = 'the model is loaded\n'; // what every replica has written
  // `role`: of the token, or of everyone where there is none.
  constructor({ fleet = small_fleet(), token, role = 'deploy', dist = fileURLToPath(new URL('../dist/', import.meta.url)) } = {}) {
    this.fleet = fleet;
    this.token = token;
    this.role = role;
    this.dist = dist;
    this.version = '0.9.0';
    this.http = createServer((request, response) => this.#answer(request, response));
    this.http.on('connection', (socket) => {
      this.tries += 1;
      if (this.away) return socket.destroy();
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
  }
  listen(port = 0) {
    return new Promise((resolve) => this.http.listen(port, '127.0.0.1', () => resolve((this.url = `http://127.0.0.1:${this.http.address().port}/`))));
  }
  close() {
    this.lose_connections();
    return new Promise((resolve) => this.http.close(resolve));
  }
  get streams() {
    return this.#streams.size;
  }
  // Says that something changed, as the server does after it has.
  changed(change = () => {}) {
    change(this.fleet);
    this.fleet.revision += 1;
    for (const stream of this.#streams) stream.write(`event: change\ndata: {"schema":1,"revision":${this.fleet.revision}}\n\n`);
  }
  lose_connections() {
    for (const socket of this.#sockets) socket.destroy();
  }

  async #answer(request, response) {
    const url = new URL(request.url, 'http://x');
    this.requests.push(url.pathname + url.search);
    response.setHeader('Content-Security-Policy', policy);
    response.setHeader('X-Content-Type-Options', 'nosniff');
    if (!url.pathname.startsWith('/api/v1/')) return this.#file(url.pathname, request, response);
    const path = url.pathname.slice('/api/v1/'.length).split('/').map(decodeURIComponent);
    if (path[0] === 'login') return this.#login(request, response);
    if (path[0] === 'logout') {
      response.setHeader('Set-Cookie', 'berth=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0');
      return this.#send(response, 200, { schema: 1 });
    }
    if (this.token && !(request.headers.cookie ?? '').includes(`berth=${this.token}`)) return this.#error(response, 401, 'not_logged_in', 'this server asks for a token');
    if (this.failing) return this.#error(response, 503, 'unavailable', this.failing);
    if (path[0] === 'stream') return this.#stream(response);
    const role = !this.token || request.headers['berth-session-secret'] === session_secret ? this.role : 'read';
    if (path[0] === 'session') return this.#send(response, 200, { schema: 1, actor: 'user:ann', role, token_role: this.role });
    if (path[3] === 'logs') return role === 'read' ? this.#error(response, 403, 'forbidden', 'this needs the role operate; this session has read') : this.#log(response);
    if (request.method !== 'GET') return role === 'read' ? this.#error(response, 403, 'forbidden', 'this needs the role operate; this session has read') : this.#change(path, request, response);
    const answer = this.#get(path, url.searchParams);
    if (!answer) return this.#error(response, 404, 'not_found', `${url.pathname} is not there`);
    this.#send(response, 200, { schema: 1, revision: this.fleet.revision, ...answer });
  }
  #get([what, name, more], query) {
    const { fleet } = this;
    const by_name = (list, key) => list.find((item) => item.name === key);
    switch (what) {
      case 'status':
        return { ...status_of(fleet), version: this.version };
      case 'nodes': {
        if (!name) return { nodes: fleet.nodes };
        const node = by_name(fleet.nodes, name);
        if (more !== 'history') return node && { node };
        const device = node?.devices.find((item) => item.id === query.get('device'));
        return device && { node: name, device: device.id, ...(device.memory_bytes_total ? history_of(device) : { t_ms: [] }) };
      }
      case 'deployments':
        return name ? by_name(fleet.deployments, name) && { deployment: by_name(fleet.deployments, name) } : { deployments: fleet.deployments };
      case 'replicas': {
        if (!name) return { replicas: fleet.replicas.filter((item) => !query.get('deployment') || item.deployment === query.get('deployment')), pending: fleet.pending };
        const full = `${name}/${more}`;
        const incarnations = fleet.replicas.filter((item) => item.name === full);
        const pending = fleet.pending.find((item) => item.deployment === name && item.replicas.includes(Number(more)));
        if (incarnations.length === 0 && !pending) return undefined;
        const why = fleet.why[full] ?? { text: incarnations[0] ? `runs on ${incarnations[0].node}: the node with the most free capacity of 3 that fit` : pending.reason.text };
        return {
          name: full, deployment: name, replica: Number(more), incarnations, why: { ...why, ...(pending && { reason: pending.reason }) },
          events: fleet.events.filter((item) => item.subject === full),
        };
      }
      case 'jobs':
        return { jobs: fleet.jobs };
      case 'endpoints':
        return { deployments: fleet.served, gateways: fleet.gateways, callers: fleet.callers ?? [] };
      case 'shards':
        return { deployments: fleet.shards };
      case 'events':
        return { events: fleet.events, last: fleet.events.at(-1)?.id ?? 0 };
    }
  }
  #stream(response) {
    response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
    response.write(`event: change\ndata: {"schema":1,"revision":${this.fleet.revision}}\n\n`);
    this.#streams.add(response);
    response.on('close', () => this.#streams.delete(response));
  }
  // Plans are those of the test; a change is made as far as the page shows it.
  async #change([what, name, more, device], request, response) {
    const body = await body_of(request);
    this.changes.push({ path: [what, name, more, device].filter(Boolean).join('/'), ...body });
    const { refused } = this;
    if (refused) return this.#error(response, refused.status, refused.code, refused.message, refused.advice);
    if (!body.dry_run)
      this.changed(({ nodes, deployments }) => {
        if (what === 'deployments') deployments.find((item) => item.name === name).replicas = body.replicas ?? 4;
        else {
          const node = nodes.find((item) => item.name === name);
          Object.assign(more === 'devices' ? node.devices.find((item) => item.id === device) : node, { intent: body.intent, intent_by: 'user:ann', intent_reason: body.reason });
        }
      });
    this.#send(response, 200, { schema: 1, version: 42, changed: true, dry_run: body.dry_run === true, changes: [], plan: { actions: [], pending: [], ...this.plan }, ...this.plan_more });
  }
  #log(response) {
    const { refused } = this;
    if (refused) return this.#error(response, refused.status, refused.code, refused.message, refused.advice);
    response.writeHead(200, { 'Content-Type': 'text/plain; charset=utf-8', 'Cache-Control': 'no-store' });
    response.write(this.logs);
    this.#readers.add(response);
    response.on('close', () => this.#readers.delete(response));
  }
  get readers() {
    return this.#readers.size;
  }
  // A replica writes this; undefined: it ends.
  write_log(text) {
    for (const reader of this.#readers) text === undefined ? reader.end() : reader.write(text);
  }
  async #login(request, response) {
    const body = await body_of(request);
    if (body.token !== this.token) return this.#error(response, 401, 'not_logged_in', 'the token is not known');
    response.setHeader('Set-Cookie', `berth=${this.token}; HttpOnly; SameSite=Strict; Path=/`);
    this.#send(response, 200, { schema: 1, role: this.role, session_secret });
  }
  #error(response, status, code, message, advice) {
    this.#send(response, status, { schema: 1, error: { code, message, ...(advice && { advice }) } });
  }
  #send(response, status, value) {
    response.writeHead(status, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' });
    response.end(JSON.stringify(value));
  }
  #file(path, request, response) {
    const file = this.dist + (path === '/' ? 'index.html' : path.slice(1));
    if (path.includes('..') || !existsSync(file)) return this.#error(response, 404, 'not_found', `${path} is not there`);
    const content = readFileSync(file);
    const etag = `"${createHash('sha256').update(content).digest('hex').slice(0, 16)}"`;
    if (request.headers['if-none-match'] === etag) return response.writeHead(304).end();
    response.writeHead(200, { 'Content-Type': types[file.split('.').pop()], 'Cache-Control': 'no-cache', ETag: etag });
    response.end(content);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({ options: { fleet: { type: 'string', default: 'small' }, port: { type: 'string', default: '8090' }, token: { type: 'string' } } });
  const server = new Server({ fleet: { small: small_fleet, large: large_fleet, empty: empty_fleet }[values.fleet](), token: values.token });
  console.log(await server.listen(Number(values.port)));
  setInterval(() => server.changed(tick), 2000);
}
