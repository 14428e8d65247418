// The page against a real `berth serve` with agents and replicas, in a real Chromium: what a user sees is what the fleet is.
//   --berth FILE --double FOLDER [--pictures FOLDER: writes the pictures of the documentation]
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test, { after, before } from 'node:test';
import { parseArgs } from 'node:util';
import { go, headless_tables, launch, lost_request, nameless_controls, open_page, phone, too_wide } from './browser.mjs';
import { contrast_failures } from './contrast.mjs';
import { RunningFleet } from './running_fleet.mjs';
import { take_pictures } from './pictures.mjs';

const { values: options } = parseArgs({ options: { berth: { type: 'string' }, double: { type: 'string' }, pictures: { type: 'string' } } });
const h100 = 'NVIDIA H100 80GB HBM3';
const gpus = {
  head: [['NVIDIA L40S', 'GPU-5d0f2c71-8a4e-4b19-9c55-0e7d31a6f002', '45GiB', 18, '9GiB']],
  'gpu-1': [
    [h100, 'GPU-2b7e9f13-60c8-47d2-b1a4-93f8e05c6d10', '80GiB', 87, '71GiB'],
    [h100, 'GPU-3c19d8a5-72fb-4e06-8d37-a4b60f9e1c21', '80GiB', 84, '70GiB'],
    [h100, 'GPU-4fa06b2e-13d9-4c8a-95e1-7c20d5b83f32', '80GiB', 41, '19GiB'],
    [h100, 'GPU-6e82c4d7-95a0-4f3b-a768-1b9d47e0c243', '80GiB', 63],
  ],
  'gpu-2': [
    [h100, 'GPU-7a3d50f9-2e6c-4819-bb02-d86f1c94e754', '80GiB', 36, '17GiB'],
    [h100, 'GPU-8d64b1e0-c7f5-4a23-8e90-35a2f07b9c65', '80GiB', 92],
  ],
};
const chat = (replicas) => fleet.serving('chat', `gpus = 1\nmemory = "20GiB"\nreplicas = ${replicas}\nserving = { path = "/chat", open = true, key = "header:x-session" }`);
const large = () => fleet.serving('large', 'gpus = 2\nmemory = "70GiB"\nreplicas = 2\non_shortage = "best_effort"');
const render = '\n[[deployment]]\nname = "render"\ngpus = 1\nmemory = "4GiB"\ncommand = ["sh", "-c", "echo render-worker is not installed; exit 127"]\n';
const outside = '\n[[deployment]]\nname = "outside"\nmodel = "gpt-4o"\n';

let browser, fleet;
before(async () => {
  browser = await launch('page_with_server');
  fleet = new RunningFleet(options);
  for (const [node, list] of Object.entries(gpus)) fleet.machine(node, list, node === 'gpu-1' ? [`process gpu=3 pid=${process.pid} bytes=31GiB`] : []);
  await fleet.serve();
  await Promise.all(['gpu-1', 'gpu-2'].map((node) => fleet.add_node(node)));
  await fleet.job('gpu-2', '--name', 'train', '--mem', '40G', '--exclusive', '--device', gpus['gpu-2'][1][1], '--', 'sleep', '1000');
  const used = (list) => list.flatMap((node) => node.devices).filter((device) => device.holders.length);
  await fleet.until(async () => used((await fleet.get('nodes')).nodes).length === 2, 'the nodes and what others run on them are known');
  await fleet.apply([chat(3), large(), render, outside]);
  await fleet.until(async () => (await fleet.get('replicas')).replicas.filter((replica) => replica.state === 'ready').length === 4, 'replicas are ready');
  await fleet.until(async () => (await fleet.get('replicas')).replicas.some((replica) => replica.name === 'render/0' && replica.failures >= 2), 'one keeps failing');
}, { timeout: 180_000 });
after(async () => {
  await browser?.close();
  await fleet?.close();
});

const allow = [/status of 401/, ...lost_request];
// All steps in one page, as a user has it open.
let page, innocent;
const step = (name, body) => test(name, { timeout: 180_000 }, body);
const sees = (text) => page.getByText(text).first().waitFor();
const log_in = async (on, token = readFileSync(fleet.token_file, 'utf8').trim()) => {
  await on.getByLabel('Token').fill(token);
  await on.keyboard.press('Enter');
};

step('asks for a token, says where it is, and keeps it nowhere', async () => {
  ({ page, innocent } = await open_page(browser, fleet.url, { allow }));
  await page.goto(fleet.url);
  const field = page.getByLabel('Token');
  await field.waitFor();
  assert.ok(await field.evaluate((element) => element === document.activeElement && element.type === 'password'));
  await sees('yours is in');
  assert.match(fleet.log('head'), /the page asks for a token: yours is in/);
  await log_in(page, 'berth_wrong');
  await sees('does not accept this token');
  const token = readFileSync(fleet.token_file, 'utf8').trim();
  await log_in(page);
  await page.locator('main [data-item]').first().waitFor();
  const left = await page.evaluate(() => document.documentElement.outerHTML + document.cookie + location.href + JSON.stringify(localStorage) + JSON.stringify(sessionStorage));
  assert.ok(!left.includes(token));
});

step('shows who is logged in', async () => {
  const account = page.locator('details summary');
  await account.waitFor();
  assert.match(await account.innerText(), /\w+\s+deploy/);
});

step('shows nodes and devices with their memory and who holds it', async () => {
  const { nodes } = await fleet.get('nodes');
  assert.equal(nodes.length, 3);
  for (const node of nodes) {
    for (const device of node.devices) {
      const row = page.locator(`a[href*="/${node.name}/${device.id}"]`);
      const text = await row.innerText();
      assert.ok(text.includes(`/ ${(device.memory_bytes_total / 2 ** 30).toFixed(1)} GiB`), text);
      for (const holder of device.holders) assert.ok(text.includes(holder.name), `${holder.name} in ${text}`);
      assert.equal((await row.locator('.bar span span').count()) > 0, !/^0\.0 \//m.test(text), text);
    }
  }
  assert.equal(await page.locator('main a[href*="/GPU-"]').count(), 7);
  assert.equal(await page.locator('main a[href*="/GPU-"] .state .ok').count(), 7, 'all of them are well');
  assert.match(await page.locator('.summary').innerText(), /3 of 3 healthy[^]*4 of 7\b/);
});

step('shows replicas, why one keeps failing, and what happened', async () => {
  await go(page, fleet.url, 'replicas');
  const { replicas } = await fleet.get('replicas');
  const text = await page.locator('main').innerText();
  for (const replica of replicas.filter(({ state }) => state === 'ready')) assert.match(text, new RegExp(`${replica.name}\\b[^/]*ready[^/]*${replica.node}`));
  await go(page, fleet.url, 'replicas/render/0');
  await page.locator('aside').getByText('127').first().waitFor();
  await page.getByRole('button', { name: 'Show the log' }).click();
  await page.locator('aside pre', { hasText: 'render-worker is not installed' }).waitFor();
  await go(page, fleet.url, 'events');
  for (const text of ['version 1 of the project', 'chat/0']) await sees(text);
  await go(page, fleet.url, 'jobs');
  await sees('sleep');
});

step('shows what is pending: the reason, what each condition left, the smallest change that the planner found', async () => {
  await go(page, fleet.url, 'pending');
  const card = page.locator('article', { hasText: 'large' });
  await card.getByText('What each condition left').waitFor();
  const { why } = JSON.parse(await fleet.berth('why', 'replica', 'large/1', '--json'));
  assert.ok(why.changes.length > 0 && why.funnel.length > 1 && why.nodes.length === 3);
  const text = await card.innerText();
  let at = -1;
  for (const part of [why.reason.text.slice(0, 30), ...why.funnel.flatMap(({ left, name }) => [String(left), name]), ...why.changes.map((change) => change.text), 'Node by node (3)']) {
    const found = text.indexOf(part, at + 1);
    assert.ok(found > at, `${part} in its place in ${text}`);
    at = found;
  }
  assert.match(await page.locator('article', { hasText: 'outside' }).innerText(), /the whole deployment is pending[^]*none has egress/);
  assert.equal(await page.title(), '(2) studio · Berth');
  assert.ok((await fleet.berth('status')).replaceAll(/\s+/g, ' ').includes(`would fit: ${why.changes[0].text}`));
});

step('shows what passes through the gateway and who computes it, and says where there is nothing', async () => {
  await go(page, fleet.url, 'requests');
  const row = (name) => page.locator('tr', { has: page.locator(`[data-item]:text-is("${name}")`) });
  const clients = await fleet.ask('/chat');
  try {
    await page.locator('.gateways', { hasText: `${clients.gateway.name} at ${clients.gateway.address}` }).waitFor();
    await row('chat').locator('dl').waitFor();
    const counted = await fleet.until(async () => {
      const deployment = (await fleet.get('endpoints')).deployments.find(({ name }) => name === 'chat');
      return deployment.endpoints.length === 3 && deployment.endpoints.every(({ traffic }) => traffic?.total_s_p99) && deployment;
    }, 'every replica has answered');
    for (const endpoint of counted.endpoints) {
      const [name] = endpoint.name.split('#');
      await page.waitForFunction((label) => /ready[^]*[1-9]\d? %[^]*ms/.test([...document.querySelectorAll('main tr')].find((line) => line.innerText.startsWith(label))?.innerText ?? ''), endpoint.name);
      const text = await row(name).innerText();
      for (const part of [endpoint.node, endpoint.devices[0].slice(0, 12), `/ ${endpoint.max_concurrent}`]) assert.ok(text.includes(part), `${part} in ${text}`);
    }
    const figures = await row('chat').locator('dl').innerText();
    assert.match(figures, /Requests\/s\s+(?!0\s)\d[\d.]*\s+First byte p50\s+[\d.]+ m?s\s+First byte p99\s+[\d.]+ m?s\s+Total p50\s+[\d.]+ m?s\s+Total p99\s+[\d.]+ m?s\s+In flight\s+\d+\s+Waiting\s+\d+\s+Rejected\/s\s+0\s+Failed\/s\s+0/);
  } finally {
    const statuses = await clients.stop();
    assert.ok(statuses.length > 3 && statuses.every((status) => status === 200), `${statuses}`);
  }
  await row('chat').getByText('No requests in the last 10 to 20 seconds').waitFor();
  await row('chat').getByRole('link', { name: 'chat', exact: true }).click();
  const { deployments } = await fleet.get('shards');
  assert.equal(deployments[0].owners.length, 3);
  const panel = (await page.locator('aside', { hasText: 'by key header:x-session, bounded load' }).innerText()).replaceAll(/\s+/g, ' ');
  for (const owner of deployments[0].owners) assert.ok(panel.includes(`ready ${owner.replica} ${owner.shards} `), `${owner.replica} in ${panel}`);
});

if (options.pictures) step('pictures', async () => {
  const clients = await fleet.ask('/chat', 8);
  await take_pictures(options.pictures, browser, fleet.url, log_in, gpus['gpu-1'][0][1]);
  await clients.stop();
});

step('a change of the project is shown without a reload', async () => {
  await go(page, fleet.url, 'replicas');
  await page.evaluate(() => (globalThis.mark = 'same page'));
  assert.equal(await page.getByText('chat/3').count(), 0);
  await fleet.apply([chat(4), large(), render, outside]);
  await page.waitForFunction(() => /chat\/3[^]*?ready/.test(document.querySelector('main').innerText));
  assert.equal(await page.evaluate(() => globalThis.mark), 'same page');
});

step('changes the fleet after its plan was shown, and only then', async () => {
  const dialog = page.locator('dialog[open]');
  const button = (name) => page.getByRole('button', { name, exact: true });
  const intent = async () => (await fleet.get('nodes')).nodes.find((node) => node.name === 'gpu-2').intent;
  await go(page, fleet.url, 'fleet/gpu-2');
  await button('Drain …').click();
  await dialog.getByText(/chat\/\d (moves from|stops on) gpu-2/).first().waitFor();
  await page.keyboard.press('Escape');
  assert.equal(await intent(), 'in_service');
  await button('Cordon …').click();
  await dialog.getByText('No replica starts, stops or moves.').waitFor();
  await dialog.getByLabel('Reason').fill('a new power supply');
  await button('Cordon').click();
  await page.locator('aside .tag', { hasText: /cordoned by .+: a new power supply/ }).first().waitFor();
  assert.equal(await intent(), 'cordoned');
  await button('Uncordon …').click();
  await dialog.getByRole('button', { name: 'Uncordon', exact: true }).click();
  await button('Cordon …').waitFor();
  assert.equal(await intent(), 'in_service');
});

step('a GPU that falls off the bus is shown, and its replica moves', async () => {
  const hit = (await fleet.get('replicas')).replicas.find((replica) => replica.deployment === 'chat' && replica.node === 'gpu-2');
  fleet.lose_gpu(hit.devices[0]);
  await go(page, fleet.url, 'fleet');
  await page.locator(`a[href*="${hit.devices[0]}"]`, { hasText: /lost|quarantined/ }).waitFor();
  await fleet.until(async () => (await fleet.get('replicas')).replicas.some((replica) => replica.name === hit.name && replica.state === 'ready' && replica.devices[0] !== hit.devices[0]), 'it moves');
});

for (const [name, context] of [['light', { colorScheme: 'light' }], ['dark', { colorScheme: 'dark' }], ['on a phone', phone]]) {
  step(`can be read, ${name}: contrast of 4.5 : 1, names for all controls, nothing too wide`, async () => {
    const other = await open_page(browser, fleet.url, { allow, ...context });
    await other.page.goto(fleet.url);
    await log_in(other.page);
    await other.page.locator('main [data-item]').first().waitFor();
    const replica = (await fleet.get('replicas')).replicas.find((item) => item.name === 'chat/0');
    const clients = await fleet.ask('/chat', 1);
    for (const view of ['fleet', 'requests', 'requests/chat', 'deployments', 'replicas', 'jobs', 'pending', 'events', 'fleet/gpu-1', `fleet/gpu-1/${gpus['gpu-1'][0][1]}`, 'deployments/large', 'replicas/large/1', `replicas/${replica.name}`]) {
      await go(other.page, fleet.url, view);
      if (view === 'requests') await other.page.locator('main dl').waitFor();
      assert.deepEqual(await other.page.evaluate(contrast_failures), [], view);
      assert.deepEqual(await nameless_controls(other.page), [], view);
      assert.deepEqual(await headless_tables(other.page), [], view);
      assert.deepEqual(await too_wide(other.page), [], view);
    }
    await clients.stop();
    if (context.colorScheme) assert.equal(await other.page.evaluate(() => getComputedStyle(document.body).backgroundColor), name === 'dark' ? 'rgb(15, 19, 24)' : 'rgb(246, 247, 249)');
    other.innocent();
    await other.page.close();
  });
}

step('a server that is gone is told, and after its return the page is right again', async () => {
  await go(page, fleet.url, 'replicas');
  await fleet.stop_server();
  await page.getByText('Connection lost, showing the state of').waitFor();
  assert.ok(await page.getByText('chat/0').first().isVisible(), 'the last state stays');
  await fleet.serve();
  // It knows no session of its predecessor.
  await page.getByLabel('Token').waitFor();
  await log_in(page);
  await page.locator('.banner').waitFor({ state: 'detached' });
  const ready = await fleet.until(async () => {
    const { replicas } = await fleet.get('replicas');
    return replicas.filter((replica) => replica.state === 'ready').length === 5 && replicas;
  }, 'the nodes report again');
  for (const replica of ready) await page.locator('[data-item]', { hasText: replica.name }).first().waitFor();
  await page.waitForFunction(() => (document.querySelector('main').innerText.match(/\bready\b/g) ?? []).length >= 5);
  innocent();
});

step('a log-out ends the session at the server', async () => {
  await page.locator('details summary').click();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Token').waitFor();
  assert.equal(await page.evaluate(() => fetch('api/v1/status').then(({ status }) => status)), 401);
  await page.reload();
  await page.getByLabel('Token').waitFor();
});
