// Changes through the page: what it offers to whom, its plans, reasons and errors; logs and log-outs, which need the same rights. Part of page_test.mjs.
import assert from 'node:assert/strict';
import { go, lost_request } from './browser.mjs';
import { sees, with_page } from './with_page.mjs';

with_page('a drain is offered only where it moves something, and a port is a link to its host', { hash: '#/fleet/gpu-1' }, async (page, server) => {
  await sees(page, 'berth drain node/gpu-1');
  const [, gpu] = server.fleet.nodes;
  await go(page, server.url, `fleet/gpu-1/${gpu.devices[7].id}`);
  await sees(page, `berth cordon node/gpu-1/${gpu.devices[7].id}`);
  assert.equal(await page.getByText('berth drain').count(), 0, 'a lease cannot be moved');
  await go(page, server.url, 'replicas/chat/0');
  assert.equal(await page.locator('aside').getByRole('link', { name: 'gpu-1:43100' }).getAttribute('href'), 'http://10.0.0.7:43100/');
  await go(page, server.url, 'replicas/embed/0');
  assert.match(await page.locator('aside').innerText(), /gpu-2:43100/);
  assert.equal(await page.locator('aside a[href^="http"]').count(), 0, 'the address of its node is not known');
});

with_page('shows who is logged in, what the page may do and how old its data is; logs out', { token: 's3cret-token', role: 'operate', allow: [/status of 401/] }, async (page, server) => {
  await page.getByLabel('Token').fill('s3cret-token');
  await page.keyboard.press('Enter');
  const account = page.locator('details summary');
  await account.waitFor();
  assert.match(await account.innerText(), /ann\s+operate/);
  assert.match(await page.locator('.account .age').innerText(), /^updated \d+ s ago$/);
  const kept = await page.evaluate(() => document.documentElement.outerHTML + document.cookie + location.href + JSON.stringify(localStorage) + JSON.stringify(sessionStorage));
  assert.ok(!kept.includes('second'), 'the second secret is in memory alone');
  await page.reload();
  await account.waitFor();
  assert.match(await account.innerText(), /ann\s+read-only/);
  await account.click();
  await sees(page, 'this page was reloaded and can only read');
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('details[open]').count(), 0);
  await account.click();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Token').waitFor();
  assert.equal(server.requests.at(-1), '/api/v1/logout');
  await page.reload();
  await page.getByLabel('Token').waitFor();
});

with_page('shows the log of a replica live, as plain text, and stops reading when it is closed', { hash: '#/replicas/chat/0' }, async (page, server) => {
  server.logs = '\x1b[32mloaded\x1b[0m in 3 s\r\n<b>ready</b>\n';
  await page.getByRole('button', { name: 'Show the log' }).click();
  const log = page.locator('aside pre');
  await log.getByText('loaded in 3 s').waitFor();
  assert.equal(await log.innerText(), 'loaded in 3 s\n<b>ready</b>\n');
  for (let i = 0; i < 2500; i += 1) server.write_log(`line ${i}\n`);
  await log.getByText('line 2499').waitFor();
  assert.ok(await log.evaluate((element) => element.scrollHeight - element.scrollTop - element.clientHeight < 24), 'it follows');
  assert.ok(!(await log.innerText()).includes('line 499\n'), 'a browser shows the newest lines');
  await log.evaluate((element) => (element.scrollTop = 0));
  await page.waitForTimeout(100);
  server.write_log('the last words\n');
  await log.getByText('the last words').waitFor();
  assert.equal(await log.evaluate((element) => element.scrollTop), 0, 'a reader who has scrolled up stays there');
  server.write_log(undefined);
  await sees(page, 'The log has ended.');
  await page.getByRole('button', { name: 'Read it again' }).click();
  await sees(page, 'New lines appear as they are written.');
  assert.equal(server.readers, 1);
  await page.keyboard.press('Escape');
  while (server.readers > 0) await page.waitForTimeout(20);
});

with_page('a token that only reads is told what a log needs', { hash: '#/replicas/chat/0', role: 'read' }, async (page) => {
  await sees(page, 'Reading logs needs a token with the role operate.');
  assert.equal(await page.getByRole('button', { name: 'Show the log' }).count(), 0);
});

with_page('a change shows its plan first, and is made only where its reader agrees', { hash: '#/fleet/gpu-1' }, async (page, server) => {
  const [, gpu] = server.fleet.nodes;
  const dialog = page.locator('dialog[open]');
  const [from, to] = [gpu.devices[2].id, gpu.devices[5].id];
  const at = (node, id) => ({ deployment: 'chat', replica: 0, node, devices: [id], memory_bytes: 0, exclusive: false });
  server.plan = {
    actions: [
      { action: 'change', deployment: 'chat', replica: 0, before: at('gpu-1', from), after: at('gpu-2', to) },
      { action: 'stop', deployment: 'chat', replica: 1, before: at('gpu-1', from) },
    ],
    pending: [
      { deployment: 'large', replicas: [0, 1], reason: 'not_enough_gpus', text: 'no node has 2 GPUs' },
      { deployment: 'chat', replicas: [3], reason: 'not_enough_gpus', text: 'nothing is free' },
    ],
  };
  await page.getByRole('button', { name: 'Drain …' }).click();
  await dialog.getByRole('heading', { name: 'Plan' }).waitFor();
  const lines = (await dialog.locator('li').allInnerTexts()).map((text) => text.replaceAll(/\s+/g, ' '));
  assert.deepEqual(lines, [
    `~ chat/0 moves from gpu-1 (${from.slice(0, 12)}) to gpu-2 (${to.slice(0, 12)})`, `- chat/1 stops on gpu-1 (${from.slice(0, 12)})`,
    '! large/0 has no place: no node has 2 GPUs', // large/1 and chat/3 have none now
  ]);
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  assert.ok(await page.locator('aside').isVisible(), 'Esc closes one thing');
  assert.deepEqual(server.changes, [{ path: 'nodes/gpu-1/intent', intent: 'draining', dry_run: true }], 'nothing was changed');

  server.changes = [];
  await page.getByRole('button', { name: 'Cordon …' }).click();
  await dialog.getByRole('button', { name: 'Cordon', exact: true }).click();
  await dialog.waitFor({ state: 'detached' });
  assert.deepEqual(server.changes, [{ path: 'nodes/gpu-1/intent', intent: 'cordoned', dry_run: true }, { path: 'nodes/gpu-1/intent', intent: 'cordoned' }]);
  await page.locator('aside .tag', { hasText: 'cordoned' }).waitFor();
  await page.getByRole('button', { name: 'Uncordon …' }).waitFor();

  await go(page, server.url, `fleet/gpu-1/${gpu.devices[7].id}`);
  server.plan = {};
  server.changes = [];
  await page.getByRole('button', { name: 'Cordon …' }).click();
  await dialog.getByText('No replica starts, stops or moves.').waitFor();
  await dialog.getByLabel('Reason').fill('its fan is loud');
  await dialog.getByRole('button', { name: 'Cordon', exact: true }).click();
  await dialog.waitFor({ state: 'detached' });
  assert.deepEqual(server.changes.at(-1), { path: `nodes/gpu-1/devices/${gpu.devices[7].id}`, intent: 'cordoned', reason: 'its fan is loud' });
});

with_page('nodes and devices out of service have shapes of their own, and say who took them out and why', {}, async (page, server) => {
  const head = (name) => page.locator('section h2', { hasText: name });
  const shape = (name) => head(name).locator('svg').first().innerHTML();
  await head('gpu-2').getByText('being drained by ann: a new power supply').waitFor();
  await page.locator('a[href*="gpu-2/GPU-"]').nth(2).getByText('cordoned by bob: its fan is loud').waitFor();
  const shapes = [await shape('gpu-1'), await shape('gpu-2')];
  server.changed(({ nodes }) => {
    const [, first, second] = nodes;
    Object.assign(first, { intent: 'cordoned', intent_by: 'user:ann', intent_reason: 'noise' });
    second.replicas = [];
    for (const device of second.devices) device.holders = device.holders.filter(({ kind }) => kind !== 'replica');
  });
  await head('gpu-1').getByText('cordoned by ann: noise').waitFor();
  await head('gpu-2').getByText('drained by ann: a new power supply', { exact: true }).waitFor();
  shapes.push(await shape('gpu-1'), await shape('gpu-2'));
  assert.equal(new Set(shapes).size, 4, 'healthy, draining, cordoned and drained differ without colour');

  for (const [name, kind, text] of [['gpu-1', 'paused', 'cordoned by ann: noise'], ['gpu-2', 'drained', 'drained by ann: a new power supply']]) {
    await go(page, server.url, `fleet/${name}`);
    await page.locator('aside p').getByText(text, { exact: true }).waitFor();
    assert.equal(await page.locator(`aside p .status.${kind}`).count(), 1, name);
  }
  await page.locator('aside td', { hasText: 'cordoned by bob: its fan is loud' }).waitFor();
  await go(page, server.url, `fleet/gpu-1/${server.fleet.nodes[1].devices[2].id}`);
  await page.locator('aside p').getByText('cordoned by ann: noise', { exact: true }).waitFor();

  await page.locator('.summary').getByRole('link', { name: '2 out of service' }).click();
  await page.waitForFunction(() => document.querySelectorAll('section h2 .name').length === 2);
  assert.deepEqual((await page.locator('section h2 .name').allInnerTexts()).sort(), ['gpu-1', 'gpu-2']);
  await page.getByText('grid', { exact: true }).click();
  const tile = page.locator('[data-group]', { hasText: 'gpu-2' });
  await tile.waitFor();
  assert.equal(await tile.locator('.free').innerText(), 'drained');
  assert.match(await tile.locator('h2 a').getAttribute('aria-label'), /drained by ann: a new power supply/);
  await page.evaluate(() => localStorage.clear());
});

with_page('a cordon of a node has a reason, and a drain after it begins with the same', { hash: '#/fleet/gpu-1' }, async (page, server) => {
  const dialog = page.locator('dialog[open]');
  const reason = dialog.getByLabel('Reason');
  await page.getByRole('button', { name: 'Cordon …' }).click();
  await reason.waitFor();
  assert.ok(await reason.evaluate((field) => field === document.activeElement), 'the dialog takes the focus');
  await reason.fill('a new fan');
  await dialog.getByRole('button', { name: 'Cordon', exact: true }).click();
  await dialog.waitFor({ state: 'detached' });
  const path = 'nodes/gpu-1/intent';
  assert.deepEqual(server.changes, [{ path, intent: 'cordoned', dry_run: true }, { path, intent: 'cordoned', reason: 'a new fan' }], 'the plan does not depend on the reason');
  assert.equal(await page.evaluate(() => document.activeElement.tagName), 'H2', 'the button is gone: its panel has the focus');
  await page.locator('aside .tag', { hasText: 'cordoned by ann: a new fan' }).first().waitFor();
  await page.getByRole('button', { name: 'Drain …' }).click();
  assert.equal(await reason.inputValue(), 'a new fan');
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Drain …', 'the dialog gives the focus back');
  await page.getByRole('button', { name: 'Uncordon …' }).click();
  await dialog.getByText('New replicas may be placed on it again.').waitFor();
  assert.equal(await reason.count(), 0);
});

with_page('a change that fails says whether it was made, why, and what to do', { hash: '#/fleet/gpu-1', allow: [/status of (403|409|503)/, ...lost_request] }, async (page, server) => {
  const dialog = page.locator('dialog[open]');
  const cordon = dialog.getByRole('button', { name: 'Cordon', exact: true });
  const again = dialog.getByRole('button', { name: 'Plan again' });
  const problem = dialog.getByRole('alert');
  const plan_again = 'Select “Plan again” to see what it would do now.';
  await page.getByRole('button', { name: 'Cordon …' }).click();
  const stale = 'the plan is for project version 42, but the project is now at version 43';
  for (const [refused, text] of [
    [{ status: 403, code: 'forbidden', message: 'this needs the role operate; this session has read' }, 'The change was not made: this needs the role operate; this session has read; log in again with a token of that role.'],
    [{ status: 409, code: 'conflict', message: stale, advice: 'plan again: berth plan --server FILE' }, `The change was not made: ${stale}. ${plan_again}`],
    [{ status: 503, code: 'unavailable', message: 'the store does not answer' }, `It is not known whether the change was made: the store does not answer; try again in a few seconds. ${plan_again}`],
  ]) {
    await cordon.click({ trial: true }); // there is a plan
    server.refused = refused;
    await cordon.click();
    assert.equal(await problem.innerText(), text);
    await page.waitForFunction(() => document.activeElement.textContent === 'Plan again');
    server.refused = undefined;
    await again.click();
  }
  await cordon.click({ trial: true });
  server.away = true;
  server.lose_connections();
  await cordon.click();
  assert.equal(await problem.innerText(), `It is not known whether the change was made: the server does not answer; check that berth serve is running and that this computer can reach it. ${plan_again}`);
  server.away = false;
  await page.locator('.banner').waitFor({ state: 'detached' });
  await again.click();
  await cordon.click();
  await dialog.waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Uncordon …' }).waitFor();

  await go(page, server.url, 'deployments/chat');
  server.refused = { status: 409, code: 'conflict', message: 'the rollout of chat is paused', advice: 'berth rollout resume chat first' };
  await page.getByRole('button', { name: 'Restart …' }).click();
  assert.equal(await problem.innerText(), 'There is no plan: the rollout of chat is paused; berth rollout resume chat first.');
});

with_page('a log that cannot be read says why, and can be read again', { hash: '#/replicas/chat/0', allow: [/status of 503/, ...lost_request] }, async (page, server) => {
  server.refused = { status: 503, code: 'unavailable', message: 'its node gpu-1 is lost', advice: 'look at it there' };
  await page.getByRole('button', { name: 'Show the log' }).click();
  const problem = page.locator('aside').getByRole('alert');
  assert.match(await problem.innerText(), /^The log cannot be read: its node gpu-1 is lost; look at it there\. /);
  server.refused = undefined;
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.locator('aside pre').getByText('the model is loaded').waitFor();
  server.lose_connections();
  await problem.filter({ hasText: 'The log cannot be read: the connection to the server was lost;' }).waitFor();
});

with_page('a log-out that fails says so, and can be tried again', { token: 's3cret-token', allow: [/status of 401/, ...lost_request] }, async (page, server) => {
  await page.getByLabel('Token').fill('s3cret-token');
  await page.keyboard.press('Enter');
  await page.locator('details summary').click();
  server.away = true;
  server.lose_connections();
  const leave = page.getByRole('button', { name: 'Log out' });
  await leave.click();
  assert.match(await page.locator('.menu').getByRole('alert').innerText(), /^You may still be logged in: the server does not answer; check that berth serve is running/);
  server.away = false;
  await page.locator('.banner').waitFor({ state: 'detached' });
  await leave.click();
  await page.getByLabel('Token').waitFor();
});

with_page('scales, restarts and undoes a deployment; what has changed since the plan is refused', { hash: '#/deployments/chat', allow: [/status of 409/] }, async (page, server) => {
  const dialog = page.locator('dialog[open]');
  await page.getByRole('button', { name: 'Scale …' }).click();
  const field = dialog.getByLabel('Replicas (now 4)');
  assert.equal(await field.inputValue(), '4');
  await field.fill('');
  await dialog.getByText('Enter a whole number from 0 to 10000.').waitFor();
  assert.ok(await dialog.getByRole('button', { name: 'Scale', exact: true }).isDisabled());
  await field.fill('6');
  await dialog.getByText('No replica starts, stops or moves.').waitFor();
  server.refused = { status: 409, code: 'conflict', message: 'the plan is for project version 42, but the project is now at version 43' };
  await dialog.getByRole('button', { name: 'Scale', exact: true }).click();
  await dialog.getByText('the project is now at version 43').waitFor();
  server.refused = undefined;
  await dialog.getByRole('button', { name: 'Plan again' }).click();
  await dialog.getByRole('button', { name: 'Scale', exact: true }).click();
  await dialog.waitFor({ state: 'detached' });
  assert.deepEqual(server.changes.slice(-2), [{ path: 'deployments/chat/scale', replicas: 6, dry_run: true }, { path: 'deployments/chat/scale', replicas: 6, if_version: 42 }]);

  server.plan_more = { restarts: ['chat/0', 'chat/1'] };
  await page.getByRole('button', { name: 'Restart …' }).click();
  await dialog.getByText('chat/1 is replaced by a new one').waitFor();
  await dialog.getByRole('button', { name: 'Restart', exact: true }).click();
  await dialog.waitFor({ state: 'detached' });
  server.plan_more = { changes: [{ deployment: 'chat', change: 'changed', fields: ['command', 'gpus'] }] };
  await page.getByRole('button', { name: 'Undo …' }).click();
  assert.deepEqual(await dialog.locator('option').allInnerTexts(), ['3: differs in memory', '1: differs in command, GPUs'], 'revision 2 has the same settings');
  await dialog.getByLabel('Revision').selectOption('1');
  await dialog.getByText('chat changes: command, GPUs').waitFor();
  await dialog.getByRole('button', { name: 'Undo', exact: true }).click();
  await dialog.waitFor({ state: 'detached' });
  assert.deepEqual(server.changes.at(-1), { path: 'deployments/chat/rollout', action: 'undo', to_revision: 1 });
});

for (const [role, buttons] of [['read', []], ['operate', ['Restart …', 'Pause …']], ['deploy', ['Scale …', 'Restart …', 'Pause …', 'Undo …']]])
  with_page(`a token with the role ${role} is offered what it may do`, { hash: '#/deployments/chat', role }, async (page) => {
    await sees(page, 'berth rollout status chat');
    assert.deepEqual(await page.locator('aside .actions button').allInnerTexts(), buttons);
  });

with_page('a page that was loaded again changes nothing until its reader has logged in again', { token: 's3cret-token', hash: '#/deployments/chat', allow: [/status of 401/] }, async (page) => {
  await page.getByLabel('Token').fill('s3cret-token');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Scale …' }).waitFor();
  await page.reload();
  await page.locator('aside').getByText('This page was reloaded and can only read.').waitFor();
  assert.equal(await page.locator('aside .actions').count(), 0);
});
