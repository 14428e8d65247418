// What the page computes, without a browser.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { reconcile } from '../src/live/reconcile.js';
import { matcher, describe_device, describe_endpoint, describe_node, describe_replica } from '../src/model/filter.js';
import { newest, plain, plain_pieces } from '../src/model/log_text.js';
import { lines_of } from '../src/model/plan.js';
import { rows_of } from '../src/model/spec.js';
import { concerns_of, device_kind, device_state, event_kind_of, intent_of, intent_text, kind_of, node_kind, node_state, problems_first, words } from '../src/model/states.js';
import { brief, bytes, bytes_of, duration, host_port, percent, rate, seconds, short_id } from '../src/model/format.js';
import { add_memory, memory_of } from '../src/model/memory.js';
import { valid_rows } from '../src/model/rows.js';
import { endpoint_state, is_quiet, replica_of, shares_of } from '../src/model/traffic.js';
import { large_fleet } from './fleet.mjs';

const copy = (value) => JSON.parse(JSON.stringify(value));

test('what is lost, failed or refused looks bad, and only what works looks well', () => {
  for (const state of ['lost', 'failed', 'quarantined', 'refused']) assert.equal(kind_of(state), 'bad', state);
  for (const state of ['suspect', 'degraded', 'unready', 'backing_off', 'pending']) assert.equal(kind_of(state), 'warn', state);
  for (const state of ['healthy', 'ready', 'serving', 'running', 'in_service']) assert.equal(kind_of(state), 'ok', state);
  assert.equal(kind_of('a state of a newer server'), 'off');
  assert.equal(kind_of(undefined), 'unknown');
});

test('an event that says that a node is lost looks as bad as a replica that failed', () => {
  assert.equal(event_kind_of({ kind: 'failed', text: 'it ended with status 1' }), 'bad');
  assert.equal(event_kind_of({ kind: 'node', text: 'gpu-3 is lost: no report for 30 s' }), 'bad');
  assert.equal(event_kind_of({ kind: 'node', text: 'gpu-3 is suspect: no report for 6 s' }), 'warn');
  assert.equal(event_kind_of({ kind: 'node', text: 'gpu-3 reports again' }), 'off');
  assert.equal(words('backing_off'), 'waiting to restart');
});

test('every state of the API has a shape', () => {
  const found = new Set();
  const look = (value, name) => {
    if (['state', 'health', 'Intent'].includes(name)) for (const state of value.enum ?? []) found.add(state);
    if (value && typeof value === 'object') for (const [key, member] of Object.entries(value)) look(member, key);
  };
  look(JSON.parse(readFileSync(new URL('../../docs/reference/openapi.json', import.meta.url), 'utf8')).components.schemas, '');
  for (const state of ['degraded', 'unready', 'quarantined', 'cordoned', 'running']) assert.ok(found.has(state), state);
  for (const state of found) assert.ok(kind_of(state) !== 'off' || state === 'gone', state);
});

test('what an operator has set is a state, and a drain without replicas is over', () => {
  const draining = { health: 'healthy', intent: 'draining', intent_by: 'user:ann', intent_reason: 'a new fan' };
  const states = [{ health: 'healthy', intent: 'in_service' }, { health: 'healthy', intent: 'cordoned' }, { ...draining, replicas: [{ state: 'ready' }] }, { ...draining, replicas: [{ state: 'gone' }] }].map(node_state);
  assert.deepEqual(states, ['healthy', 'cordoned', 'draining', 'drained']);
  assert.equal(new Set(states.map(kind_of)).size, 4, 'each has a shape of its own');
  assert.equal(intent_of(draining), 'draining', 'whether replicas are left is not known');
  assert.equal(node_state({ ...draining, health: 'lost' }), 'lost');
  assert.equal(intent_text({ ...draining, replicas: [{ state: 'ready' }] }), 'being drained by ann: a new fan');
  assert.equal(intent_text({ ...draining, replicas: [] }), 'drained by ann: a new fan');
  assert.equal(intent_text({ intent: 'cordoned' }), 'cordoned');
  assert.equal(intent_text({ intent: 'in_service', intent_reason: 'repaired' }), '');
  const device = (kind) => ({ health: 'healthy', intent: 'in_service', holders: [{ kind, name: 'x' }] });
  assert.deepEqual(['replica', 'job'].map((kind) => device_state(device(kind), draining)), ['draining', 'drained']);
  assert.equal(device_state({ ...device('replica'), intent: 'cordoned' }, { health: 'healthy' }), 'cordoned');
  const node = { name: 'n', ...draining, replicas: [], devices: [] };
  for (const text of ['out of service', 'drained', 'new fan']) assert.ok(matcher(text).matches(node, describe_node), text);
  assert.ok(!matcher('out of service').matches({ ...node, intent: 'in_service' }, describe_node));
});

test('of the devices of a lost node, neither measurements nor states are known', () => {
  const [node] = large_fleet(1).nodes;
  const measured = { ...copy(node.devices[0]), holders: [{ kind: 'replica', name: 'chat/0', memory_bytes: 8 }, { kind: 'foreign', name: 'Xorg' }], temperature_celsius: 90, error: 'late' };
  const bare = { id: 'x', backend: 'cuda', health: 'healthy', intent: 'in_service', holders: [] };
  const lost = { ...node, health: 'lost', devices: [measured, bare] };
  const known = valid_rows({ nodes: [copy(lost)], node: copy(lost) });
  assert.deepEqual(known.node, known.nodes[0]);
  const [first, second] = known.node.devices;
  assert.deepEqual([first, second].map((device) => device_state(device, lost)), ['unknown', 'unknown']);
  assert.equal(device_kind(first, lost), 'unknown');
  assert.deepEqual(concerns_of(first), []);
  for (const key of ['sample_age_ms', 'utilization', 'temperature_celsius', 'power_watts', 'memory_bytes_free', 'error']) assert.ok(!(key in first), key);
  assert.deepEqual(first.holders.map(({ name }) => name), ['chat/0']);
  const memory = memory_of(first);
  assert.deepEqual([memory.replicas, memory.unknown, memory.free], [8, memory.total - 8, 0]);
  assert.equal(memory_of(second), undefined);
  assert.equal(lost.devices[0].health, 'healthy', 'the answer itself stays as it is');
});

test('an answer without a change keeps every identity', () => {
  const answer = { nodes: large_fleet(3).nodes };
  const first = reconcile(undefined, copy(answer), 1_000_000);
  assert.equal(reconcile(first, copy(answer), 1_000_700), first);
});

test('one changed device changes that device, its node and nothing else', () => {
  const answer = { nodes: large_fleet(3).nodes };
  const first = reconcile(undefined, copy(answer), 0);
  answer.nodes[1].devices[4].utilization = 0.123;
  const second = reconcile(first, copy(answer), 0);
  assert.notEqual(second, first);
  assert.equal(second.nodes[0], first.nodes[0]);
  assert.notEqual(second.nodes[1], first.nodes[1]);
  second.nodes[1].devices.forEach((device, i) => assert.equal(device === first.nodes[1].devices[i], i !== 4));
});

test('a node more at the front leaves the others as they are', () => {
  const answer = { nodes: large_fleet(3).nodes };
  const first = reconcile(undefined, copy(answer.nodes), 0);
  const second = reconcile(first, copy([{ name: 'a', devices: [] }, ...answer.nodes]), 0);
  assert.deepEqual(second.slice(1).map((node, i) => node === first[i]), [true, true, true]);
});

test('bad rows of one node are left out, and all others stay', () => {
  const good = large_fleet(2).nodes;
  const bad = {
    ...good[1],
    devices: [null, 7, {}, { id: null }, { id: 'x', holders: [null, 3, {}, { name: 'job' }] }, { id: 'x' }, { id: 'y', holders: 'many' }, { id: 'z' }],
  };
  const answer = valid_rows({ nodes: [good[0], bad, null, {}] });
  assert.deepEqual(answer.nodes[0], good[0]);
  assert.deepEqual(answer.nodes[1].devices, [{ id: 'x', holders: [{ name: 'job' }] }, { id: 'y', holders: [] }, { id: 'z' }]);
  assert.equal(answer.nodes.length, 2);
  assert.deepEqual(valid_rows({ node: { name: 'n', devices: null } }).node.devices, []);
  assert.deepEqual(valid_rows({ jobs: [null, { name: 'j', node: 'n', devices: [null, 'g'] }, { name: 7 }] }).jobs, [{ name: 'j', node: 'n', devices: ['g'] }]);
  assert.deepEqual(valid_rows({ nodes: { total: 1 } }), { nodes: { total: 1 } }, 'the counts of the status');
});

test('a member that is gone is a change', () => {
  const first = reconcile(undefined, { a: 1, b: 2 }, 0);
  assert.deepEqual(reconcile(first, { a: 1 }, 0), { a: 1 });
});

test('ages become moments, and a moment moves only when something was reported again', () => {
  const first = reconcile(undefined, { last_report_age_s: 0.5, sample_age_ms: 600, age_s: 7 }, 10_000);
  assert.deepEqual(first, { last_report_at: 9500, sample_at: 9400, at: 3000 });
  assert.equal(reconcile(first, { last_report_age_s: 5.6, sample_age_ms: 5600, age_s: 12 }, 15_000), first);
  assert.equal(reconcile(first, { last_report_age_s: 0.5, sample_age_ms: 600, age_s: 12 }, 15_000).last_report_at, 14_500);
});

test('memory that is not known is unknown, never free and never zero', () => {
  assert.equal(memory_of({ holders: [] }), undefined);
  assert.deepEqual(memory_of({ memory_bytes_total: 100, holders: [{ kind: 'replica', memory_bytes: 30 }] }), {
    total: 100, replicas: 30, jobs: 0, foreign: 0, other: 0, unknown: 70, free: 0,
  });
  assert.equal(add_memory([{ holders: [] }]).without, 1);
  assert.equal(bytes(undefined), 'unknown');
  assert.equal(bytes_of(undefined, 2 ** 30), '? / 1.0 GiB');
  assert.equal(percent(undefined), '–');
  assert.equal(percent(0), '0 %');
});

test('the parts of a memory bar add up to the whole', () => {
  for (const node of large_fleet(20).nodes) {
    for (const device of node.devices) {
      const { total, replicas, jobs, foreign, other, unknown, free } = memory_of(device);
      assert.equal(replicas + jobs + foreign + other + unknown + free, total);
    }
  }
  // More in use than anyone was promised.
  assert.equal(memory_of({ memory_bytes_total: 100, memory_bytes_free: 20, holders: [{ kind: 'job', memory_bytes: 50 }] }).other, 30);
});

test('requests that are not known are not none, and few are not none', () => {
  assert.equal(rate(undefined), '–');
  assert.equal(rate(0), '0');
  assert.equal(rate(0.05), '< 0.1');
  assert.deepEqual([0.1, 50.922, 101.156, 12345.6].map(rate), ['0.1', '50.9', '101', '12346']);
  assert.equal(seconds(undefined), '–');
  assert.deepEqual([0, 0.00042, 0.001456, 0.0124, 0.108, 0.9996, 12.06, 262].map(seconds), ['0.00 ms', '0.42 ms', '1.46 ms', '12.4 ms', '108 ms', '1.00 s', '12.1 s', '262 s']);
});

test('a deployment is quiet only where its gateways say so', () => {
  const none = { requests_per_s: 0, waiting: 0, in_flight: 0 };
  assert.ok(is_quiet(none));
  assert.ok(!is_quiet(undefined), 'no gateway has reported');
  assert.ok(!is_quiet({ waiting: 0, in_flight: 0 }), 'a gateway has just started and has no rates yet');
  for (const more of [{ requests_per_s: 0.05 }, { in_flight: 1 }, { waiting: 1 }]) assert.ok(!is_quiet({ ...none, ...more }));
});

test('shares of replicas add up to one, and those that are not known have none', () => {
  const endpoint = (name, requests_per_s) => ({ name, ...(requests_per_s !== undefined && { traffic: { requests_per_s } }) });
  assert.deepEqual([...shares_of([endpoint('a/0#1', 30), endpoint('a/1#2', 10), endpoint('a/2#3'), endpoint('a/3#4', 0)])], [['a/0#1', 0.75], ['a/1#2', 0.25], ['a/3#4', 0]]);
  assert.equal(shares_of([endpoint('a/0#1', 0), endpoint('a/1#2')]).size, 0);
  assert.equal(shares_of([]).size, 0);
});

test('an endpoint is a replica with an incarnation, and one that a gateway leaves out is not ready', () => {
  assert.deepEqual(replica_of({ name: 'chat/12#170' }), ['chat', '12']);
  const left_out = { name: 'chat/0#1', node: 'gpu-1', state: 'ready', devices: ['GPU-1'], traffic: { ejected_by: ['edge'] } };
  assert.equal(endpoint_state(left_out), 'ejected');
  assert.equal(kind_of('ejected'), 'bad');
  assert.equal(endpoint_state({ state: 'draining', traffic: { ejected_by: [] } }), 'draining');
  const matches = (text) => matcher(text).matches(left_out, describe_endpoint, 'chat /v1/chat');
  assert.ok(matches('gpu-1 ejected') && matches('GPU-1 /v1') && !matches('gpu-2'));
});

test('a replica that is not ready is called so', () => {
  assert.equal(words('unready'), 'not ready');
  assert.ok(matcher('not ready').matches({ name: 'a/0', state: 'unready' }, describe_replica));
});

test('text', () => {
  assert.equal(words('not_enough_gpus'), 'not enough GPUs');
  assert.equal(bytes(150754820096), '140.4 GiB');
  assert.equal(duration(12_400), '12 s');
  assert.equal(duration(3_600_000 * 5), '5 h');
  assert.equal(short_id('GPU-ea3b8f50-1111-2222-3333-444444444444'), 'GPU-ea3b8f50');
});

test('a filter wants all of its words, of the device or of its node', () => {
  const device = { id: 'GPU-1', name: 'H200', backend: 'cuda', holders: [{ kind: 'replica', name: 'chat/0', user: 'ann' }] };
  const matches = (text) => matcher(text).matches(device, describe_device, 'gpu-7 lost zone=a');
  assert.ok(matches(''));
  assert.ok(matches('CHAT h200'));
  assert.ok(matches('gpu-7 chat'));
  assert.ok(!matches('gpu-8 chat'));
});

test('a device that is hot, slowed down or at its power limit is not simply well', () => {
  const node = { health: 'healthy', intent: 'in_service' };
  const device = (more) => ({ health: 'healthy', intent: 'in_service', temperature_celsius: 60, ...more });
  assert.equal(device_kind(device(), node), 'ok');
  assert.equal(device_kind(device({ recovery_action: 'none', throttle_reasons: [], ecc_uncorrected: 0 }), node), 'ok');
  assert.equal(device_kind(device({ recovery_action: 'reset' }), node), 'warn');
  assert.equal(device_kind(device({ temperature_celsius: 81, throttle_reasons: ['power cap'] }), node), 'warn');
  assert.equal(device_kind(device({ throttle_reasons: ['power cap'] }), node), 'capped');
  assert.equal(device_kind(device({ throttle_reasons: ['hardware slowdown'] }), node), 'warn');
  assert.equal(device_kind(device({ throttle_reasons: ['clock set by an application'] }), node), 'ok', 'somebody wants it so');
  assert.equal(device_kind(device({ health: 'quarantined', temperature_celsius: 90 }), node), 'bad', 'the state is worse');
  assert.deepEqual(concerns_of(device({ throttle_reasons: ['temperature', 'temperature, by the hardware'] })).map(({ text }) => text), ['slowed down by heat']);
});

test('problems come first, and what is equal keeps its order', () => {
  const nodes = [
    { name: 'a', health: 'healthy', devices: [] },
    { name: 'b', health: 'healthy', devices: [{ health: 'lost' }] },
    { name: 'c', health: 'healthy', devices: [{ health: 'healthy', temperature_celsius: 90 }] },
    { name: 'd', health: 'lost', devices: [] },
    { name: 'e', health: 'healthy', intent: 'draining', devices: [] },
    { name: 'f', health: 'healthy', problem: 'ignores this server', devices: [] },
  ];
  assert.equal(problems_first(nodes, node_kind).map((node) => node.name).join(''), 'dbface');
  assert.equal(nodes[0].name, 'a', 'the answer itself stays as it is');
});

test('ids in texts become short, and nothing else does', () => {
  assert.equal(brief('lost GPU-ea3b8f50-1111-2222-3333-444444444444, MIG-ea3b8f50-1111-2222-3333-444444444444.'), 'lost GPU-ea3b8f50, MIG-ea3b8f50.');
  assert.equal(brief('GPU-ea3b8f50 has 20 GiB'), 'GPU-ea3b8f50 has 20 GiB');
  assert.equal(brief(undefined), '');
  assert.deepEqual([host_port('10.0.0.7', 80), host_port('fd00::7', 80)], ['10.0.0.7:80', '[fd00::7]:80']);
});

test('settings have units and words', () => {
  const spec = { name: 'x', gpus: 2, memory_bytes: 2 ** 30, readiness: { http: '/', every_s: 0.5 }, liveness: { tcp: true, timeout_s: 1 }, environment: { HF_HOME: '/m' }, single: true, stop_grace_s: 1.2000000001, unready_within_s: 300, on_shortage: 'best_effort', serving: { key: 'header:x', affinity: 'bounded_load' } };
  assert.deepEqual(rows_of(spec), [
    ['GPUs', '2'], ['memory', '1.0 GiB'], ['readiness', 'http /, every 0.5 s'], ['liveness', 'tcp, timeout 1 s'], ['environment', 'HF_HOME=/m'], ['single', 'yes'], ['time to stop', '1.2 s'],
    ['restart when not ready for', '300 s'], ['on shortage', 'best effort'], ['serving', 'key header:x, affinity bounded load'],
  ]);
  const plan = { plan: { actions: [], pending: [] }, changes: [{ deployment: 'chat', fields: ['memory_bytes', 'unready_within_s', 'gpus'] }] };
  assert.deepEqual(lines_of(plan), [{ sign: '~', text: 'chat changes: memory, restart when not ready for, GPUs' }]);
});

test('a log is plain text, and only its newest lines are kept', () => {
  assert.equal(plain('\x1b[1;31mred\x1b[0m\x1b]0;title\x07 a\tb\r\nc\x00\x1b(B'), 'red a\tb\nc');
  const piece = plain_pieces();
  assert.deepEqual(['a\x1b', '[1;3', '1mb', 'c\x1b[0m'].map(piece), ['a', '', 'b', 'c'], 'a sequence may be cut in two');
  const lines = Array.from({ length: 3000 }, (_, i) => `line ${i}\n`).join('');
  const kept = newest(lines).split('\n');
  assert.ok(kept.length <= 2002 && kept.at(-2) === 'line 2999' && /^line \d+$/.test(kept[0]), `${kept.length} ${kept[0]}`);
  assert.equal(newest('x'.repeat(500_000)).length, 400_000, 'of one endless line the end');
  assert.equal(newest('short'), 'short');
});
