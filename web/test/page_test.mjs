// The page in a real Chromium, against server.mjs. `--dist DIR` is the built page, `--pictures DIR` also writes a picture of each view.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import test, { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { chromium } from 'playwright-core';
import { empty_fleet, large_fleet } from './fleet.mjs';
import { take_pictures } from './pictures.mjs';
import { Server } from './server.mjs';
import { contrast_failures } from './contrast.mjs';

const { values: options } = parseArgs({ options: { dist: { type: 'string', default: fileURLToPath(new URL('../dist', import.meta.url)) }, pictures: { type: 'string' }, chromium: { type: 'string' } } });
const executable = options.chromium ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
if (!executable) {
  console.log('page_in_browser: chromium is missing, the page was not tried in a browser\n[  SKIPPED ] page_in_browser');
  process.exit(77);
}

const gib = 2 ** 30;
const dist = `${options.dist}/`;
let browser;
before(async () => {
  // A sandbox of its own needs rights that root in a container does not have.
  browser = await chromium.launch({ executablePath: executable, args: process.getuid() === 0 ? ['--no-sandbox'] : [] });
});
after(() => browser?.close());

// Runs `body` with a server and a page on it; ends with a check that the page did nothing it must not do.
function with_page(name, { hash = '#/fleet', allow = [], context = {}, ...server_options }, body) {
  test(name, { timeout: 180_000 }, async () => {
    const server = new Server({ dist, ...server_options });
    await server.listen();
    const page = await browser.newPage({ viewport: { width: 1360, height: 860 }, ...context });
    const complaints = [];
    page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('request', (request) => request.url().startsWith(server.url) || complaints.push(`asks ${request.url()}`));
    await page.addInitScript(() => document.addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`)));
    try {
      await page.goto(server.url + hash);
      await body(page, server);
      assert.deepEqual(complaints.filter((text) => !allow.some((pattern) => pattern.test(text))), []);
    } finally {
      await page.close();
      await server.close();
    }
  });
}
const lost_request = [/Failed to load resource: net::ERR/, /net::ERR_/];
// Goes to a view and waits until it shows something, so that a page without content passes no test of its content.
async function go(page, server, view) {
  await page.goto(`${server.url}#/${view}`);
  await page.locator('main :is([data-item], .empty)').first().waitFor();
  if (view.split('/').length > 1) await page.locator('aside .content > :not(.problem)').first().waitFor();
  if (view.includes('/GPU-')) await page.locator('aside .uplot canvas').first().waitFor();
  await page.waitForTimeout(100);
}
const sees = (page, text) => page.getByText(text).first().waitFor({ timeout: 20_000 });

test('all files together are below 60 KB as they travel', () => {
  const sizes = readdirSync(dist).map((file) => [file, gzipSync(readFileSync(dist + file), { level: 9 }).length]);
  const sum = sizes.reduce((total, [, size]) => total + size, 0);
  console.log('  gzipped:', sizes.map(([file, size]) => `${file} ${size}`).join(', '), 'in all', sum);
  assert.ok(sum < 60_000);
});

with_page('shows nodes, devices, holders, and what is not known as unknown', {}, async (page) => {
  await sees(page, 'gpu-1');
  assert.equal(await page.locator('a[href*="gpu-1/GPU-"]').count(), 8);
  const pocl = page.locator('a[href$="/opencl-pocl-0"]');
  assert.match(await pocl.innerText(), /unknown/);
  assert.match(await pocl.getAttribute('aria-label'), /memory unknown/);
  const third = page.locator('a[href*="gpu-1/GPU-"]').nth(2);
  for (const text of ['84.5 / 140.4 GiB', '62 %', '60 °C', 'chat/0', 'j17', 'bob']) assert.ok((await third.innerText()).includes(text), text);
  // What a lost node measured last is not shown as if it were so now.
  assert.match(await page.locator('a[href*="gpu-3/GPU-"]').first().innerText(), /–\s+–/);
});

with_page('a change is shown without a reload, and nothing else is touched', { fleet: large_fleet() }, async (page, server) => {
  await page.locator('[data-group]').nth(199).waitFor();
  await page.waitForTimeout(1500);
  await page.evaluate(() => {
    globalThis.touched = 0;
    globalThis.mark = 'same page';
    new MutationObserver((records) => (globalThis.touched += records.length)).observe(document.querySelector('main'), { subtree: true, childList: true, attributes: true, characterData: true });
  });
  const device = server.fleet.nodes[7].devices[3];
  const asked = server.requests.length;
  server.changed(() => (device.health = 'quarantined'));
  await page.locator(`a[href$="${device.id}"].bad`).waitFor();
  await page.waitForTimeout(6000); // and a refresh in which nothing changed
  const { touched, mark } = await page.evaluate(() => ({ touched: globalThis.touched, mark: globalThis.mark }));
  assert.equal(mark, 'same page');
  assert.ok(touched > 0 && touched < 20, `${touched} changes of the document`);
  assert.ok(server.requests.length > asked);
});

with_page('1,600 GPUs can be filtered and walked by keyboard', { fleet: large_fleet() }, async (page, server) => {
  await page.locator('[data-group]').nth(199).waitFor();
  assert.equal(await page.locator('main [data-item]').count(), 1800);
  assert.ok((await page.evaluate(() => document.querySelectorAll('*').length)) < 9000);
  await page.keyboard.press('/');
  await page.keyboard.type('rack-150');
  await page.waitForFunction(() => document.querySelectorAll('[data-group]').length === 1);
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => document.querySelectorAll('[data-group]').length === 200);
  await page.locator('[data-group]').first().locator('[data-item]').nth(3).focus();
  const at = () => page.evaluate(() => decodeURIComponent(document.activeElement.getAttribute('href')).split('/').slice(2).join('/'));
  const name = (node, device) => `${server.fleet.nodes[node].name}/${server.fleet.nodes[node].devices[device].id}`;
  assert.equal(await at(), name(0, 2));
  const columns = await page.evaluate(() => getComputedStyle(document.querySelector('[data-grid]')).gridTemplateColumns.split(' ').length);
  await page.keyboard.press('ArrowDown');
  assert.equal(await at(), name(columns, 2));
  await page.keyboard.press('ArrowRight');
  assert.equal(await at(), name(columns, 3));
  await page.keyboard.press('ArrowUp');
  assert.equal(await at(), name(0, 3));
});

with_page('a lost connection is told, with the age of the state, and repaired', { allow: lost_request }, async (page, server) => {
  await sees(page, 'gpu-1');
  await page.waitForFunction(() => !document.body.innerText.includes('Connection lost'));
  server.away = true;
  server.lose_connections();
  await page.getByText('Connection lost, showing the state of').waitFor({ timeout: 20_000 });
  const age = async () => Number(/state of (\d+) s ago/.exec(await page.locator('.banner').innerText())[1]);
  const first = await age();
  const asked = server.tries;
  await page.waitForTimeout(3500);
  assert.ok((await age()) >= first + 2);
  assert.ok(server.tries - asked <= 4, `${server.tries - asked} tries in 3.5 s`);
  assert.ok(await page.getByText('chat/0').first().isVisible(), 'the last state stays');
  // What changed meanwhile was announced to no one.
  server.fleet.nodes[0].health = 'suspect';
  server.fleet.revision += 1;
  server.away = false;
  await page.locator('.banner').waitFor({ state: 'detached', timeout: 30_000 });
  assert.equal(server.streams, 1);
  await page.locator('h2', { hasText: 'edge-1' }).getByText('suspect').last().waitFor({ timeout: 15_000 });
  server.changed((fleet) => (fleet.nodes[0].health = 'healthy'));
  await page.locator('h2', { hasText: 'edge-1' }).getByText('suspect').last().waitFor({ state: 'detached', timeout: 15_000 });
});

with_page('a stream that ends alone is opened again', { allow: lost_request }, async (page, server) => {
  await sees(page, 'gpu-1');
  await page.waitForTimeout(500);
  server.lose_connections();
  await page.waitForTimeout(2500);
  assert.equal(server.streams, 1);
  assert.equal(await page.locator('.banner').count(), 0);
});

with_page('a server that cannot serve says why', { allow: [/status of 503/] }, async (page, server) => {
  await sees(page, 'gpu-1');
  server.failing = 'the store does not answer';
  server.changed();
  await page.getByText('the store does not answer').waitFor();
  server.failing = undefined;
  await page.getByRole('button', { name: 'Try now' }).click();
  await page.locator('.banner').waitFor({ state: 'detached' });
});

with_page('a server of another version makes the page load itself again', { allow: lost_request }, async (page, server) => {
  await sees(page, 'gpu-1');
  await page.waitForTimeout(500);
  await page.evaluate(() => (globalThis.mark = 'before'));
  server.version = '0.10.0';
  server.changed();
  await page.waitForFunction(() => globalThis.mark === undefined);
  await sees(page, 'gpu-1');
});

with_page('asks for a token where the server does, and keeps it nowhere', { token: 's3cret-token', allow: [/status of 401/, ...lost_request] }, async (page, server) => {
  const field = page.getByLabel('Token');
  await field.waitFor();
  assert.ok(await field.evaluate((element) => element === document.activeElement && element.type === 'password'));
  await field.fill('wrong');
  await page.keyboard.press('Enter');
  await page.getByText('does not accept this token').waitFor();
  await field.fill('s3cret-token');
  await page.keyboard.press('Enter');
  await sees(page, 'gpu-1');
  const left = await page.evaluate(() => document.documentElement.outerHTML + document.cookie + location.href + JSON.stringify(localStorage) + JSON.stringify(sessionStorage));
  assert.ok(!left.includes('s3cret'));
  // Revoked while the page is open.
  server.token = 'another';
  server.changed();
  await field.waitFor();
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
  const stops = [];
  while (stops.filter((stop) => stop === 'out').length < 3 && stops.length < 20) {
    await page.keyboard.press('Tab');
    stops.push(await page.evaluate(() => (document.activeElement.closest('main') ? document.activeElement.tagName : 'out')));
  }
  assert.deepEqual(stops.filter((stop) => stop !== 'out'), ['INPUT', 'A'], 'the layout, then the list');
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

with_page('pending: the reason first, then funnel, smallest change, command', { hash: '#/pending' }, async (page) => {
  const card = page.locator('article').first();
  await card.getByText('Each of these changes alone').waitFor();
  const text = await card.innerText();
  const order = ['no node has 2 GPUs with 120.0 GiB free', '14', '11', 'fit 120.0 GiB', 'pairs', 'ask for 75.0 GiB instead of 120.0 GiB', 'berth why replica large/1'];
  let at = -1;
  for (const part of order) {
    const found = text.indexOf(part, at + 1);
    assert.ok(found > at, `${part} in its place`);
    at = found;
  }
  assert.equal(await page.title(), '(2) studio · Berth');
});

for (const [hash, text] of [['#/fleet', 'berth agent --join'], ['#/deployments', 'berth apply'], ['#/replicas', 'berth apply'], ['#/jobs', 'berth run -d'], ['#/pending', 'Everything has its place'], ['#/events', 'Nothing has happened yet']]) {
  with_page(`an empty ${hash.slice(2)} says what to do next`, { fleet: empty_fleet(), hash }, (page) => sees(page, text));
}

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
  await page.locator('aside').getByText('foreign').first().waitFor();
  await page.keyboard.press('Escape');
  await page.locator('aside').waitFor({ state: 'detached' });
});

with_page('something that is gone is said to be gone', { hash: '#/deployments/nothing', allow: [/status of 404/] }, (page) => sees(page, 'This is no longer there.'));

const views = ['fleet', 'deployments', 'replicas', 'jobs', 'pending', 'events', 'fleet/gpu-1', 'deployments/chat', 'replicas/large/1', 'replicas/chat/2'];
for (const scheme of ['light', 'dark']) {
  with_page(`contrast of all text is at least 4.5 : 1, ${scheme}`, { context: { colorScheme: scheme } }, async (page, server) => {
    const backgrounds = new Set();
    for (const view of [...views, `fleet/gpu-1/${server.fleet.nodes[1].devices[3].id}`]) {
      await go(page, server, view);
      assert.deepEqual(await page.evaluate(contrast_failures), [], view);
      backgrounds.add(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    }
    assert.deepEqual([...backgrounds], [scheme === 'dark' ? 'rgb(15, 19, 24)' : 'rgb(246, 247, 249)']);
  });
}

with_page('every control has a name', {}, async (page, server) => {
  for (const view of [...views, `fleet/gpu-1/${server.fleet.nodes[1].devices[3].id}`]) {
    await go(page, server, view);
    const nameless = await page.evaluate(() =>
      [...document.querySelectorAll('a, button, input, [role=img]')]
        .filter((element) => !(element.getAttribute('aria-label') || element.textContent.trim() || element.labels?.length))
        .map((element) => element.outerHTML.slice(0, 100)));
    assert.deepEqual(nameless, [], view);
  }
});

for (const [name, fleet] of [['small', undefined], ['large', large_fleet()]]) {
  with_page(`at 360 px the page never scrolls sideways, ${name} fleet`, { fleet, context: { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true } }, async (page, server) => {
    const node = server.fleet.nodes[1];
    for (const view of [...views.slice(0, 6), `fleet/${node.name}`, `fleet/${node.name}/${node.devices[3].id}`, 'deployments/chat', 'replicas/chat/0']) {
      await go(page, server, view);
      const wide = await page.evaluate(() => {
        const over = document.documentElement.scrollWidth - innerWidth;
        return over <= 0 ? [] : [over, ...[...document.querySelectorAll('body *')].filter((element) => element.getBoundingClientRect().right > innerWidth + 1).slice(0, 3).map((element) => element.outerHTML.slice(0, 120))];
      });
      assert.deepEqual(wide, [], view);
    }
  });
}

if (options.pictures) {
  test('pictures', { timeout: 180_000 }, async () => {
    mkdirSync(options.pictures, { recursive: true });
    await take_pictures(browser, options.pictures, dist);
  });
}
