// Pictures of every view, light, dark and on a phone, with the fleets of the tests:
//   npm run pictures -- --out FOLDER [--only NAME]
import { mkdirSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { desk, go, launch, phone } from './browser.mjs';
import { large_fleet, small_fleet } from './fleet.mjs';
import { Server } from './server.mjs';

const { values: options } = parseArgs({ options: { out: { type: 'string' }, only: { type: 'string', default: '' } } });
if (!options.out) throw new Error('--out FOLDER says where the pictures go');
mkdirSync(options.out, { recursive: true });

const contexts = {
  light: { ...desk, colorScheme: 'light' },
  dark: { ...desk, colorScheme: 'dark' },
  phone: { ...phone, viewport: { width: 390, height: 844 }, deviceScaleFactor: 2 },
};
const click = (name) => async (page) => {
  await page.getByRole('button', { name, exact: true }).first().click();
  await page.locator('dialog .plan :not(.muted), aside pre').first().waitFor();
};
const gpus = (server) => server.fleet.nodes.find((node) => node.name === 'gpu-1').devices;
const lost_gpu = (server) => server.fleet.nodes.find((node) => node.name === 'gpu-2').devices[3].id;
// Name of the picture, view, and what to do there.
const views = [
  ['fleet', () => 'fleet'],
  ['node', () => 'fleet/gpu-1'],
  ['device', (server) => `fleet/gpu-1/${gpus(server)[2].id}`],
  ['device-hot', (server) => `fleet/gpu-1/${gpus(server)[4].id}`],
  ['device-lost', (server) => `fleet/gpu-2/${lost_gpu(server)}`],
  ['requests', () => 'requests'],
  ['requests-open', () => 'requests/chat'],
  ['deployments', () => 'deployments'],
  ['deployment', () => 'deployments/chat'],
  ['replicas', () => 'replicas'],
  ['replica', () => 'replicas/chat/2'],
  ['replica-log', () => 'replicas/chat/0', click('Show the log')],
  ['replica-pending', () => 'replicas/large/1'],
  ['jobs', () => 'jobs'],
  ['pending', () => 'pending'],
  ['events', () => 'events'],
  ['account', () => 'fleet', (page) => page.locator('details summary').click()],
  ['drain', () => 'fleet/gpu-1', click('Drain …')],
  ['scale', () => 'deployments/chat', click('Scale …')],
  ['undo', () => 'deployments/chat', click('Undo …')],
];

const servers = { small: new Server({ fleet: small_fleet() }), large: new Server({ fleet: large_fleet() }), closed: new Server({ token: 'a token' }) };
for (const server of Object.values(servers)) await server.listen();
const [busy, free] = [gpus(servers.small)[2].id, gpus(servers.small)[7].id];
const at = (node, id) => ({ deployment: 'chat', replica: 0, node, devices: [id], memory_bytes: 0, exclusive: false });
servers.small.plan = {
  actions: [{ action: 'change', deployment: 'chat', replica: 0, before: at('gpu-1', busy), after: at('gpu-2', free) }, { action: 'stop', deployment: 'chat', replica: 1, before: at('gpu-1', busy) }],
  pending: [{ deployment: 'large', replicas: [0], reason: 'not_enough_gpus', text: 'no node has 2 GPUs with 120.0 GiB free' }],
};
servers.small.logs = Array.from({ length: 40 }, (_, i) => `INFO 10:${String(i).padStart(2, '0')}:07 engine: ${i} requests, ${(312 + i) % 97} tokens per second, the cache holds ${i} %\n`).join('');

const browser = await launch('pictures');
for (const [suffix, context] of Object.entries(contexts)) {
  const take = async (name, prepare) => {
    if (!name.includes(options.only)) return;
    const page = await browser.newPage(context);
    await prepare(page);
    await page.waitForTimeout(300);
    await page.screenshot({ path: `${options.out}/${name}-${suffix}.png` });
    await page.close();
  };
  for (const [name, view, act] of views)
    await take(name, async (page) => {
      await go(page, servers.small.url, view(servers.small));
      await act?.(page);
    });
  await take('grid', (page) => go(page, servers.large.url, 'fleet'));
  await take('login', (page) => page.goto(servers.closed.url).then(() => page.getByLabel('Token').waitFor()));
  console.log(`${options.out}/*-${suffix}.png`);
}
await browser.close();
for (const server of Object.values(servers)) await server.close();
