// The page against answers that a fleet on one machine cannot give: 1,600 GPUs, a lost node, a server that fails, text that attacks, nothing at
// all. What it shows of a real fleet is in server_test.mjs; what it changes, and who may do that, in changes.mjs. The options are in with_page.mjs.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, readdirSync } from 'node:fs';
import test from 'node:test';
import { gzipSync } from 'node:zlib';
import { go, headless_tables, lost_request, nameless_controls, phone, too_wide } from './browser.mjs';
import { node_kind, problems_first } from '../src/model/states.js';
import './changes.mjs';
import { empty_fleet, large_fleet } from './fleet.mjs';
import { dist, options, sees, with_page } from './with_page.mjs';

const gib = 2 ** 30;

test('all files together are below 75 KB as they travel', () => {
  const sizes = readdirSync(dist).map((file) => [file, gzipSync(readFileSync(dist + file), { level: 9 }).length]);
  const sum = sizes.reduce((total, [, size]) => total + size, 0);
  console.log('  gzipped:', sizes.map(([file, size]) => `${file} ${size}`).join(', '), 'in all', sum);
  assert.ok(sum < 75_000);
});

with_page('shows nodes, devices, holders, and what is not known as unknown', {}, async (page) => {
  await sees(page, 'gpu-1');
  assert.equal(await page.locator('a[href*="gpu-1/GPU-"]').count(), 8);
  const pocl = page.locator('a[href$="/cpu-opencl-0"]');
  assert.match(await pocl.innerText(), /unknown/);
  assert.match(await pocl.getAttribute('aria-label'), /memory unknown/);
  const third = page.locator('a[href*="gpu-1/GPU-"]').nth(2);
  for (const text of ['84.5 / 140.4 GiB taken', '62 %', '60 °C', 'chat/0', 'j17', 'bob']) assert.ok((await third.innerText()).includes(text), text);
  // What a lost node measured last is not shown as if it were so now, and of a lost GPU nothing is known.
  assert.match(await page.locator('a[href*="gpu-3/GPU-"]').first().innerText(), /–\s+–/);
  assert.match(await page.locator('a[href*="gpu-2/GPU-"]').nth(3).innerText(), /nothing is measured\s+–\s+–\s+–\s+lost/);
  assert.equal(await page.locator('.heads').innerText().then((text) => text.replaceAll(/\s+/g, ' ').trim()), '# Device Memory Load Temp. Power Used by');
  assert.deepEqual(await page.locator('section h2 .name').allInnerTexts(), ['gpu-3', 'gpu-1', 'gpu-2', 'edge-1'], 'problems first');
});

with_page('a hot or slowed-down GPU does not look well', {}, async (page) => {
  const gpu = (i) => page.locator('a[href*="gpu-1/GPU-"]').nth(i);
  await gpu(4).waitFor();
  assert.match(await gpu(4).innerText(), /86 °C[^]*slowed down by heat\s+hot\s+power-capped/);
  assert.equal(await gpu(4).locator('.state .warn').count(), 1);
  assert.equal(await gpu(0).locator('.state .capped').count(), 1, 'at its power limit');
  assert.equal(await gpu(2).locator('.state .ok').count(), 1);
  await gpu(4).click();
  await page.locator('aside .concern', { hasText: 'slowed down by heat' }).waitFor();
});

with_page('a grid does not add RAM to GPU memory', {}, async (page, server) => {
  await page.getByText('grid', { exact: true }).click();
  const free = (name) => page.locator('[data-group]', { hasText: name }).locator('.free').innerText();
  await page.locator('[data-group]').first().waitFor();
  const gpus = server.fleet.nodes.find((node) => node.name === 'gpu-1');
  server.changed(() => gpus.devices.push({ id: 'host', backend: 'host', health: 'healthy', intent: 'in_service', memory_bytes_total: 500 * gib, memory_bytes_free: 400 * gib, holders: [] }));
  await page.locator('a[href$="gpu-1/host"]').waitFor();
  const expected = gpus.devices.filter((device) => device.backend === 'cuda').reduce((sum, device) => sum + (device.memory_bytes_total - Math.max(device.memory_bytes_total - device.memory_bytes_free, device.holders.reduce((held, { memory_bytes }) => held + memory_bytes, 0.5 * gib))), 0);
  assert.equal(await free('gpu-1'), `${(expected / gib).toFixed(1)} GiB free`);
  await page.evaluate(() => localStorage.clear());
});

with_page('ids of devices are short in every text, and whole in its title', { hash: '#/events' }, async (page, server) => {
  const { id } = server.fleet.nodes[1].devices[6];
  await page.locator('td', { hasText: `${id.slice(0, 12)} is quarantined` }).waitFor();
  assert.equal(await page.locator(`td[title*="${id} is quarantined"]`).count(), 1);
  for (const view of ['events', 'pending', 'replicas', 'replicas/large/1', 'deployments', 'deployments/large']) {
    await go(page, server.url, view);
    if (view === 'pending') await page.getByText('What each condition left').first().waitFor();
    assert.doesNotMatch(await page.locator('body').innerText(), /GPU-[0-9a-f]{8}-[0-9a-f]{4}/, view);
  }
});

with_page('settings of a deployment are told in words', { hash: '#/deployments/chat' }, async (page) => {
  const facts = (await page.locator('aside .facts').innerText()).replaceAll(/\s+/g, ' ');
  for (const text of ['memory 60.0 GiB', 'readiness http /health, every 0.5 s', 'node selector zone=a', 'serving path /chat, key header:x-session']) assert.ok(facts.includes(text), facts);
});

with_page('the devices of a lost node are unknown, with or without their last measurements', {}, async (page, server) => {
  const { devices } = server.fleet.nodes[3];
  const [{ id }] = devices;
  for (const measured of [true, false]) {
    if (!measured) {
      for (const device of devices) for (const key of ['memory_bytes_free', 'memory_bytes_unattributed', 'memory_bytes_foreign', 'utilization', 'temperature_celsius', 'power_watts', 'sample_age_ms', 'throttle_reasons']) delete device[key];
      await page.reload();
    }
    await go(page, server.url, 'fleet');
    const row = page.locator(`a[href*="gpu-3/${id}"]`);
    assert.match(await row.innerText(), /last seen \d+ s ago\s+–\s+–\s+–\s+unknown\s+embed\/2/);
    assert.equal(await row.locator('.state .unknown').count(), 1);
    assert.doesNotMatch(await row.getAttribute('aria-label'), /healthy|taken|%|°C/);
    await go(page, server.url, `fleet/gpu-3/${id}`);
    const panel = await page.locator('aside').innerText();
    assert.match(panel, /unknown\s+on gpu-3\s+last seen \d+ s ago/);
    assert.match(panel, /Node gpu-3 is lost, so the state of this device is not known/);
    assert.doesNotMatch(panel, /healthy|measured \d|\b0 %|\b0 °C|\b0 W|\b0 B|\b0\.0/);
    assert.deepEqual((await page.locator('aside figcaption .value').allInnerTexts()).slice(0, 2), ['unknown', '–'], 'the charts end');
  }
});

with_page('a replica that is not ready is called so', { hash: '#/requests/embed' }, async (page, server) => {
  await page.locator('aside h2').waitFor();
  server.changed((fleet) => {
    fleet.replicas.find(({ name }) => name === 'embed/1').state = 'unready';
    fleet.served.find(({ name }) => name === 'embed').endpoints[1].state = 'unready';
    fleet.deployments.find(({ name }) => name === 'embed').spec.serving = { key: 'header:x' };
    const owners = ['embed/0', 'embed/1'].map((replica, i) => ({ replica, shards: 1, state: i ? 'unready' : 'ready' }));
    fleet.shards.push({ name: 'embed', key: 'header:x', affinity: 'strict', epoch: 1, shards: 2, shards_moved: 0, owners });
  });
  await page.locator('main tr', { hasText: 'embed/1' }).getByText('not ready').waitFor();
  await page.locator('aside tr', { hasText: '50 %' }).nth(1).getByText('not ready').waitFor();
  assert.doesNotMatch(await page.locator('body').innerText(), /draining|unready/);
  await go(page, server.url, 'replicas');
  await page.locator('tr', { hasText: 'embed/1' }).getByText('not ready').waitFor();
  await go(page, server.url, 'deployments');
  await page.locator('tr', { hasText: 'embed' }).getByText('degraded').waitFor();
});

with_page('every control has a name, and every table a head for each of its columns', {}, async (page, server) => {
  const [, gpu] = server.fleet.nodes;
  for (const view of ['fleet', 'requests', 'requests/chat', 'deployments', 'deployments/chat', 'replicas', 'replicas/chat/0', 'replicas/large/1', 'jobs', 'pending', 'events', 'fleet/gpu-1', `fleet/gpu-1/${gpu.devices[2].id}`]) {
    await go(page, server.url, view);
    if (view === 'pending') await page.getByText('Node by node').first().waitFor();
    assert.deepEqual(await nameless_controls(page), [], view);
    assert.deepEqual(await headless_tables(page), [], view);
  }
  await go(page, server.url, 'deployments/chat');
  for (const name of ['Scale …', 'Undo …']) {
    await page.getByRole('button', { name }).click();
    await page.locator('dialog[open] :is(input, select)').waitFor();
    assert.deepEqual(await nameless_controls(page), [], name);
    await page.keyboard.press('Escape');
    await page.locator('dialog').waitFor({ state: 'detached' });
  }
});

with_page('on a phone the first node is near the top, and its numbers have names', { context: { ...phone, viewport: { width: 390, height: 844 } } }, async (page) => {
  const first = page.locator('main section').first();
  await first.waitFor();
  const { y } = await first.boundingBox();
  assert.ok(y < 180, `the first node begins at ${y} of 844 px`);
  const load = page.locator('a[href*="gpu-1/GPU-"] .load').first();
  assert.match(await load.evaluate((element) => getComputedStyle(element, '::before').content), /load/);
  assert.ok((await load.boundingBox()).height < 25, 'in one line');
  assert.deepEqual(await too_wide(page), []);
});

with_page('shows who waits in line, for what, and jobs by name', { hash: '#/jobs' }, async (page) => {
  const row = (name) => page.locator('tr', { hasText: name }).first();
  await sees(page, 'train');
  assert.match(await row('train').innerText(), /train j16\s+running/);
  assert.match(await row('j18').innerText(), /waiting\s+number 1 in line\s+bob\s+gpu-1\s+waits for 2 devices\s+130\.0 GiB/);
  await page.goto(page.url().replace('jobs', 'pending'));
  await sees(page, '1 replica pending: large/1');
});

with_page('shows what passes through the gateways, which device computes it, and what is not known as unknown', { hash: '#/requests' }, async (page, server) => {
  const row = (name) => page.locator('tr', { has: page.locator(`[data-item]:text-is("${name}")`) });
  const text = async (name) => (await row(name).innerText()).replaceAll(/\s+/g, ' ').trim();
  await row('chat').waitFor();
  const gateways = await page.locator('.gateways').innerText();
  for (const gateway of ['edge at 10.0.0.7:8081', 'head at 127.0.0.1:8081']) assert.ok(gateways.includes(gateway), gateways);
  const figures = /chat path \/chat key header:x-session Requests\/s 312 First byte p50 84\.2 ms First byte p99 391 ms Total p50 1\.32 s Total p99 4\.87 s In flight 41 Waiting 3 Rejected\/s .*< 0\.1 Failed\/s 0/;
  assert.match(await text('chat'), figures);
  const devices = server.fleet.replicas.filter((replica) => replica.deployment === 'chat').map((replica) => replica.devices[0].slice(0, 12));
  assert.equal(await text('chat/0'), `chat/0#17 ready gpu-1 ${devices[0]} 75 % 234 32 / 32 81.3 ms 402 ms 1.29 s 4.91 s`);
  assert.equal(await text('chat/1'), `chat/1#18 ejected by edge gpu-1 ${devices[1]} 25 % 78.1 9 / 32 90.4 ms 350 ms 1.41 s 4.70 s`);
  assert.equal(await text('chat/2'), `chat/2#31 gone gpu-1 ${devices[2]} – – / 32 – – – –`);
  const bar = (name) => row(name).locator('.bar > span').evaluate((part) => part.getBoundingClientRect().width / part.parentElement.getBoundingClientRect().width);
  assert.ok(Math.abs((await bar('chat/0')) - 0.75) < 0.02);
  assert.match(await text('embed'), /No requests in the last 10 to 20 seconds\.$/);
  assert.match(await text('tokens'), /not known: no gateway has reported them in the last 5 seconds\.$/);
  assert.equal(await text('tokens/0'), 'tokens/0#17 ready edge-1 – – / 32 – – – –');

  const local = { id: 'local', traffic: { waiting: 0, in_flight: 0, ejected_by: [] } };
  server.fleet.callers = [local];
  await row('chat').waitFor();
  assert.equal(await page.locator('.callers').count(), 0, 'without keys there is nothing to tell apart');
  const busy = { requests_per_s: 30, rejected_per_s: 2, failed_per_s: 0, retried_per_s: 0, waiting: 4, in_flight: 8, first_byte_s_p99: 0.05, total_s_p99: 0.25, ejected_by: [] };
  server.fleet.callers = [local, { id: 't7', name: 'app', deployment: 'chat', traffic: busy }];
  await page.locator('.callers').waitFor();
  const callers = await page.locator('.callers tbody tr').evaluateAll((rows) => rows.map((line) => line.innerText.replaceAll(/\s+/g, ' ').trim()));
  assert.match(callers[0], /^t7 app chat 30\.0 2\.0 0 0 4 8 – 50\.0 ms – 250 ms$/);
  assert.match(callers[1], /^local – /);

  // Requests are counted without a change of the fleet: no stream says so.
  const chat = server.fleet.served[0];
  chat.traffic.requests_per_s = 7.25;
  await row('chat').getByText('7.3').waitFor();
  const looks = () => server.requests.filter((path) => path === '/api/v1/endpoints').length;
  const next_look = async () => {
    for (const count = looks(); looks() === count; ) await page.waitForTimeout(20);
    return Date.now();
  };
  const times = [];
  while (times.length < 4) times.push(await next_look());
  const shortest_ms = Math.min(...times.slice(1).map((time, i) => time - times[i])); // of several, since the machine may be busy
  assert.ok(shortest_ms < 4000, `the page looks every ${shortest_ms} ms`);
  const { traffic } = chat;
  delete chat.traffic;
  await row('chat').getByText('not known').waitFor();
  chat.traffic = traffic;
  await row('chat').getByText('7.3').waitFor();

  await page.keyboard.press('/');
  await page.keyboard.type(devices[1]);
  await page.waitForFunction(() => document.querySelectorAll('main [data-item]').length === 2);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.locator('aside h2', { hasText: 'Replica chat/1' }).waitFor();
  assert.match(page.url(), /#\/requests\/chat\/1\?q=/);
  await page.keyboard.press('Escape');
  await page.locator('aside').waitFor({ state: 'detached' });
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => document.querySelectorAll('main [data-item]').length === 10);
  await row('chat').getByRole('link', { name: 'chat', exact: true }).click();
  const shards = page.locator('aside table', { hasText: '1366' });
  assert.match((await shards.innerText()).replaceAll(/\s+/g, ' '), /ready chat\/0 1366 33 %.*gone chat\/2 1365 33 %/);
  for (const width of [1360, 900, 400]) {
    await page.setViewportSize({ width, height: 800 });
    for (const view of ['requests', 'requests/chat']) {
      await go(page, server.url, view);
      assert.deepEqual(await too_wide(page), [], `${view} at ${width}`);
    }
  }
});

with_page('a phone names every figure of a replica, since its table has no head there', { hash: '#/requests', context: phone }, async (page) => {
  const cell = page.locator('tr', { hasText: 'chat/0' }).locator('[data-label="First p99"]');
  await cell.waitFor();
  assert.ok(!(await page.locator('thead').isVisible()));
  assert.match(await cell.evaluate((element) => getComputedStyle(element, '::before').content), /First p99/);
  assert.deepEqual(await too_wide(page), []);
});

with_page('1,600 GPUs: a change touches nothing else; filter, arrows, and a phone', { fleet: large_fleet() }, async (page, server) => {
  await page.locator('[data-group]').nth(199).waitFor();
  assert.equal(await page.locator('main [data-item]').count(), 1800);
  assert.ok((await page.evaluate(() => document.querySelectorAll('*').length)) < 9000);
  await page.waitForTimeout(500);
  await page.evaluate(() => {
    globalThis.touched = 0;
    new MutationObserver((records) => (globalThis.touched += records.length)).observe(document.querySelector('main'), { subtree: true, childList: true, attributes: true, characterData: true });
  });
  const device = server.fleet.nodes[7].devices[3];
  server.changed(() => (device.health = 'quarantined'));
  await page.locator(`a[href$="${device.id}"].bad`).waitFor();
  const asked = server.requests.length;
  while (server.requests.length === asked) await page.waitForTimeout(100); // a refresh in which nothing changed
  await page.waitForTimeout(500);
  const touched = await page.evaluate(() => globalThis.touched);
  assert.ok(touched > 0 && touched < 20, `${touched} changes of the document`);

  await page.keyboard.press('/');
  await page.keyboard.type('rack-150');
  await page.waitForFunction(() => document.querySelectorAll('[data-group]').length === 1);
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => document.querySelectorAll('[data-group]').length === 200);
  await page.locator('[data-group]').first().locator('[data-item]').nth(3).focus();
  const at = () => page.evaluate(() => decodeURIComponent(document.activeElement.getAttribute('href')).split('/').slice(2).join('/'));
  const nodes = problems_first(server.fleet.nodes, node_kind);
  const name = (node, device) => `${nodes[node].name}/${nodes[node].devices[device].id}`;
  assert.equal(await at(), name(0, 2));
  const columns = await page.evaluate(() => getComputedStyle(document.querySelector('[data-grid]')).gridTemplateColumns.split(' ').length);
  await page.keyboard.press('ArrowDown');
  assert.equal(await at(), name(columns, 2));
  await page.keyboard.press('ArrowRight');
  assert.equal(await at(), name(columns, 3));
  await page.keyboard.press('ArrowUp');
  assert.equal(await at(), name(0, 3));

  if (options.pictures) {
    mkdirSync(options.pictures, { recursive: true });
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.evaluate(() => (document.activeElement.blur(), scrollTo(0, 0)));
    await page.waitForTimeout(300);
    await page.screenshot({ path: `${options.pictures}/grid-dark.png` });
  }
  await page.setViewportSize(phone.viewport);
  for (const view of ['fleet', 'requests', 'replicas', `fleet/${server.fleet.nodes[1].name}`]) {
    await go(page, server.url, view);
    assert.deepEqual(await too_wide(page), [], view);
  }
});

with_page('a lost connection is told, with the age of the state, and repaired', { allow: lost_request }, async (page, server) => {
  await sees(page, 'gpu-1');
  await page.waitForFunction(() => !document.body.innerText.includes('Connection lost'));
  server.away = true;
  server.lose_connections();
  await page.getByText('Connection lost, showing the state of').waitFor();
  const age = async () => Number(/state of (\d+) s ago/.exec(await page.locator('.banner').innerText())[1]);
  const first = await age();
  const asked = server.tries;
  await page.waitForTimeout(2200);
  assert.ok((await age()) > first);
  assert.ok(server.tries - asked <= 4, `${server.tries - asked} tries in 2.2 s`);
  assert.ok(await page.getByText('chat/0').first().isVisible(), 'the last state stays');
  // What changed meanwhile was announced to no one.
  server.fleet.nodes[0].health = 'suspect';
  server.fleet.revision += 1;
  server.away = false;
  await page.locator('.banner').waitFor({ state: 'detached' });
  assert.equal(server.streams, 1);
  await page.locator('h2', { hasText: 'edge-1' }).getByText('suspect').last().waitFor();
  server.changed((fleet) => (fleet.nodes[0].health = 'healthy'));
  await page.locator('h2', { hasText: 'edge-1' }).getByText('suspect').last().waitFor({ state: 'detached' });
});

with_page('a stream that ends is opened again, a server that fails says why, another version loads the page again', { allow: [/status of 503/, ...lost_request] }, async (page, server) => {
  await sees(page, 'gpu-1');
  const streams = async (count) => {
    while (server.streams !== count) await page.waitForTimeout(50);
  };
  await streams(1);
  server.lose_connections();
  await streams(0);
  await streams(1);
  await page.locator('.banner').waitFor({ state: 'detached' });

  server.failing = 'the store does not answer';
  server.changed();
  await page.getByText('the store does not answer').waitFor();
  server.failing = undefined;
  await page.getByRole('button', { name: 'Try now' }).click();
  await page.locator('.banner').waitFor({ state: 'detached' });

  await streams(1);
  await page.evaluate(() => (globalThis.mark = 'before'));
  server.version = '0.10.0';
  server.changed();
  await page.waitForFunction(() => globalThis.mark === undefined);
  await sees(page, 'gpu-1');
});

with_page('a token that is revoked while the page is open is asked for again', { token: 's3cret-token', allow: [/status of 401/, ...lost_request] }, async (page, server) => {
  await page.getByLabel('Token').fill('s3cret-token');
  await page.keyboard.press('Enter');
  await sees(page, 'gpu-1');
  server.token = 'another';
  server.changed();
  await page.getByLabel('Token').waitFor();
});

with_page('keyboard: filter, list, open, close', {}, async (page) => {
  await sees(page, 'gpu-1');
  await page.keyboard.press('/');
  await page.keyboard.type('chat');
  await page.waitForFunction(() => document.querySelectorAll('main [data-item]').length === 4);
  assert.match(page.url(), /q=chat/);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  const opener = await page.evaluate(() => document.activeElement.getAttribute('href'));
  await page.keyboard.press('Enter');
  await page.locator('aside h2').waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.tagName), 'H2');
  await page.locator('aside .uplot canvas').nth(2).waitFor();
  await page.keyboard.press('Escape');
  await page.locator('aside').waitFor({ state: 'detached' });
  await page.waitForTimeout(100);
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('href')), opener);
  await page.keyboard.press('Escape');
  assert.ok(!page.url().includes('q='));
  // The whole list is one stop for the tab key.
  await page.getByLabel(/^Filter/).focus();
  const next_stop = async () => {
    await page.keyboard.press('Tab');
    return page.evaluate(() => (document.activeElement.closest('main') ? document.activeElement.tagName : 'out'));
  };
  const stops = [];
  for (let i = 0; i < 20 && stops.length < 3; ++i) {
    const stop = await next_stop();
    if (stop !== 'out' || stops.length > 0) stops.push(stop);
  }
  assert.deepEqual(stops, ['INPUT', 'A', 'out'], 'the layout, then the list');
});

with_page('focus is visible on every stop', {}, async (page) => {
  await sees(page, 'gpu-1');
  for (let i = 0; i < 10; i += 1) {
    await page.keyboard.press('Tab');
    const style = await page.evaluate(() => {
      const element = document.activeElement;
      const shown = element.type === 'radio' ? element.closest('label') : element;
      return { name: element.tagName + element.textContent.slice(0, 20), outline: getComputedStyle(shown).outlineStyle, width: parseFloat(getComputedStyle(shown).outlineWidth), skip: element.className.includes('skip') };
    });
    assert.ok(style.skip || (style.outline !== 'none' && style.width >= 1), style.name);
  }
});

with_page('an empty view says what to do next', { fleet: empty_fleet() }, async (page, server) => {
  for (const [view, text] of [['fleet', 'berth agent --join'], ['requests', 'There is no gateway'], ['requests', 'No deployment takes requests'], ['deployments', 'berth apply'], ['replicas', 'berth apply'], ['jobs', 'berth run -d'], ['pending', 'Nothing is pending'], ['events', 'Nothing has happened yet']]) {
    await page.goto(`${server.url}#/${view}`);
    await sees(page, text);
  }
});

with_page('text of others is text', {}, async (page, server) => {
  await sees(page, 'gpu-1');
  const evil = '<img src=x onerror=alert(1)>"\'/..?#';
  server.changed((fleet) => {
    fleet.nodes[0].name = evil;
    fleet.nodes[0].devices[0].id = `a"b/${evil}`;
    fleet.nodes[0].devices[0].holders = [{ kind: 'foreign', name: evil, user: evil, memory_bytes: gib }];
  });
  await page.locator('h2 .name', { hasText: evil }).waitFor();
  assert.equal(await page.locator('img').count(), 0);
  await page.locator('section', { hasText: evil }).locator('li a').first().click();
  await page.locator('aside').getByText('other process').first().waitFor();
  await page.keyboard.press('Escape');
  await page.locator('aside').waitFor({ state: 'detached' });
});

with_page('shows the warnings of the server, and what is wrong with a node', {}, async (page, server) => {
  await sees(page, 'gpu-1');
  server.changed((fleet) => {
    fleet.warnings = [{ subject: 'store', text: '1 node ignores this server because the store is older' }];
    fleet.nodes.find((node) => node.name === 'gpu-1').problem = 'it has followed a server of epoch 7';
  });
  await sees(page, 'store: 1 node ignores this server because the store is older');
  await page.goto(page.url().replace(/#.*|$/, '#/fleet/gpu-1'));
  await sees(page, 'it has followed a server of epoch 7');
});

with_page('something that is gone is said to be gone', { hash: '#/deployments/nothing', allow: [/status of 404/] }, async (page) => {
  for (const [what, text] of [['deployments/nothing', 'There is no deployment “nothing”.'], ['fleet/gpu-9', 'There is no node “gpu-9”.'], ['fleet/gpu-1/GPU-x', 'There is no device “GPU-x”.']]) {
    await page.goto(page.url().replace(/#.*/, `#/${what}`));
    await page.locator('aside').getByRole('alert').filter({ hasText: text }).waitFor();
  }
});
