// A fleet for the tests of the page, in the forms of the API: as data, and changed by the tests through plain functions.

const gib = 2 ** 30;
const begin_ms = Date.now();

// The same numbers in every run.
function random_from(seed) {
  return () => {
    seed = (seed * 1664525 + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };
}

function hex(random, digits) {
  return Array.from({ length: digits }, () => Math.floor(random() * 16).toString(16)).join('');
}

function gpu(random, ordinal, model, total_gib, capability) {
  const id = `GPU-${hex(random, 8)}-${hex(random, 4)}-${hex(random, 4)}-${hex(random, 4)}-${hex(random, 12)}`;
  return {
    id, backend: 'cuda', name: model, ordinal, health: 'healthy', intent: 'in_service', memory_bytes_total: total_gib * gib,
    memory_bytes_free: (total_gib - 0.5) * gib, memory_bytes_berth: 0, memory_bytes_foreign: 0, memory_bytes_unattributed: 0.5 * gib, utilization: 0,
    temperature_celsius: 34, power_watts: 72, power_limit_watts: 700, clock_mhz: 1980, sample_age_ms: 600, capability, recovery_action: 'none', throttle_reasons: [], numa_node: ordinal < 4 ? 0 : 1,
    pci_address: `0000:${(0x18 + 0x11 * ordinal).toString(16)}:00.0`, labels: {}, holders: [],
  };
}

function hold(device, kind, name, user, held_gib, used_gib = held_gib) {
  const holder = { kind, name };
  if (user) holder.user = user;
  if (held_gib) holder.memory_bytes = held_gib * gib;
  device.holders.push(holder);
  if (kind === 'foreign') device.memory_bytes_foreign += used_gib * gib;
  else device.memory_bytes_berth += used_gib * gib;
  device.memory_bytes_free -= used_gib * gib;
  return device;
}

function busy(device, utilization) {
  device.utilization = utilization;
  device.temperature_celsius = Math.round(36 + 38 * utilization);
  device.power_watts = Math.round(80 + 560 * utilization);
}

function node(name, more) {
  return {
    name, health: 'healthy', intent: 'in_service', last_report_age_s: 0.8, joined_at_ms: begin_ms - 86_400_000, version: '0.9.0', cpus: 64,
    memory_bytes: 503 * gib, labels: {}, taints: [], egress: false, clock_offset_s: -0.02, devices: [], links: [], replicas: [], ...more,
  };
}

function replica(deployment, index, where, devices, more = {}) {
  return {
    name: `${deployment}/${index}`, deployment, replica: index, generation: 17 + index, revision: 4, current: true, state: 'ready', node: where.name,
    devices: devices.map((device) => device.id), memory_bytes: 60 * gib, exclusive: false, assigned_at_ms: begin_ms - 3_600_000 * (index + 1),
    started_at_ms: begin_ms - 3_599_000 * (index + 1), port: 43100 + index, ...(where.address && { address: where.address }), failures: 0, job: `j${20 + index}`, report_age_s: 0.8, ...more,
  };
}

// What the gateways count, for a deployment or a replica. The times are in milliseconds: p50 and p99 to the first byte, and in all.
function traffic(requests_per_s, in_flight, [first_p50, first_p99, total_p50, total_p99] = [], more = {}) {
  const times = { first_byte_s_p50: first_p50, first_byte_s_p99: first_p99, total_s_p50: total_p50, total_s_p99: total_p99 };
  for (const key of Object.keys(times)) times[key] = times[key] && times[key] / 1000;
  return { requests_per_s, rejected_per_s: 0, failed_per_s: 0, ...times, waiting: 0, in_flight, ejected_by: [], ...more };
}

function served(name, replicas, serving, counted, each = []) {
  const endpoints = replicas
    .filter((item) => item.deployment === name)
    .map((item, i) => ({ name: `${item.name}#${item.generation}`, node: item.node, max_concurrent: 32, state: item.state === 'ready' ? 'ready' : 'gone', devices: item.devices, ...(each[i] && { traffic: each[i] }) }));
  return { name, model: '', serving, idempotent: false, endpoints, ...(counted && { traffic: counted }) };
}

function deployment(name, replicas, ready, state, more = {}, spec = {}) {
  return {
    name, revision: 4, replicas, ready, updated: replicas, state, ...more, spec: { name, model: 'meta-llama/Llama-3.1-8B', runtime: 'vllm', replicas, ...spec },
    rollout: {
      revision: 4, surge: 1, unavailable: 0, paused: false, undo_revisions: 2,
      earlier: [{ revision: 3, fields: ['memory_bytes'] }, { revision: 2, fields: [] }, { revision: 1, fields: ['command', 'gpus'] }], ...more.rollout,
    },
  };
}

// Eight GPUs joined by NVLink, two smaller machines, one without a GPU; deployments in every state.
export function small_fleet() {
  const random = random_from(7);
  const big = node('gpu-1', { labels: { zone: 'a' }, address: '10.0.0.7' });
  big.devices = Array.from({ length: 8 }, (_, i) => gpu(random, i, 'NVIDIA H200', 140.4, '9.0'));
  big.links = big.devices.flatMap((a, i) => big.devices.slice(i + 1).map((b) => ({ a: a.id, b: b.id, kind: 'nvlink', lanes: 18 })));
  const two = node('gpu-2', { labels: { zone: 'b' }, cpus: 32, memory_bytes: 251 * gib, intent: 'draining', intent_by: 'user:ann', intent_reason: 'a new power supply' });
  two.devices = Array.from({ length: 4 }, (_, i) => gpu(random, i, 'NVIDIA L40S', 44.9, '8.9'));
  const lost = node('gpu-3', { labels: { zone: 'b' }, cpus: 32, memory_bytes: 251 * gib, health: 'lost', last_report_age_s: 74 });
  lost.devices = Array.from({ length: 2 }, (_, i) => gpu(random, i, 'NVIDIA L40S', 44.9, '8.9'));
  const plain = node('edge-1', { egress: true, cpus: 16, memory_bytes: 62.7 * gib });
  plain.devices = [
    {
      id: 'host', backend: 'host', name: 'AMD EPYC 7313P', ordinal: 0, health: 'healthy', intent: 'in_service', memory_bytes_total: 62.7 * gib, memory_bytes_free: 51.2 * gib,
      utilization: 0.11, sample_age_ms: 400, is_fallback: true, labels: {}, holders: [],
    },
    { id: 'cpu-opencl-0', backend: 'opencl', name: 'PoCL', ordinal: 0, health: 'healthy', intent: 'in_service', labels: {}, holders: [] },
  ];
  const g = big.devices;
  for (const i of [0, 1]) busy(hold(g[i], 'replica', 'large/0', 'svc', 120, 112), 0.93), (g[i].held_exclusively = true);
  busy(hold(g[2], 'replica', 'chat/0', 'svc', 60, 41), 0.62);
  hold(g[2], 'job', 'j17', 'bob', 24, 11);
  busy(hold(g[3], 'replica', 'chat/1', 'svc', 60, 39), 0.48);
  hold(g[3], 'foreign', 'python3', 'eve', 9.3);
  busy(hold(g[4], 'job', 'train', 'ann', 100, 96.5), 0.99);
  g[4].temperature_celsius = 86;
  g[4].throttle_reasons = ['power cap', 'temperature'];
  g[0].throttle_reasons = ['power cap'];
  busy(hold(g[5], 'replica', 'chat/2', 'svc', 60, 3.2), 0.04);
  Object.assign(g[6], { health: 'quarantined', recovery_action: 'reset', utilization: undefined, temperature_celsius: undefined, power_watts: undefined });
  hold(g[7], 'lease', '12', 'eve', 20, 0);
  busy(hold(two.devices[0], 'replica', 'embed/0', 'svc', 8, 6.1), 0.31);
  hold(two.devices[0], 'replica', 'embed/1', 'svc', 8, 6.2);
  hold(two.devices[1], 'foreign', 'Xorg', 'root', 0.4);
  Object.assign(two.devices[2], { intent: 'cordoned', intent_by: 'user:bob', intent_reason: 'its fan is loud' });
  // A GPU that fell off the bus: the server leaves out what was measured before.
  Object.assign(two.devices[3], { health: 'lost', sample_age_ms: 47_000 });
  for (const key of ['memory_bytes_free', 'memory_bytes_unattributed', 'utilization', 'temperature_celsius', 'power_watts', 'clock_mhz']) delete two.devices[3][key];
  hold(lost.devices[0], 'replica', 'embed/2', 'svc', 8, 6.0);
  for (const device of [...g, ...two.devices, ...lost.devices]) device.memory_bytes_foreign ||= 0;

  const replicas = [
    replica('chat', 0, big, [g[2]]),
    replica('chat', 1, big, [g[3]]),
    replica('chat', 2, big, [g[5]], { state: 'starting', generation: 31, assigned_at_ms: begin_ms - 14_000, started_at_ms: begin_ms - 13_000, reason: 'readiness probe: connection refused on port 43102' }),
    replica('large', 0, big, [g[0], g[1]], { memory_bytes: 120 * gib, exclusive: true, memory_bytes_peak: 112 * gib }),
    replica('embed', 0, two, [two.devices[0]], { memory_bytes: 8 * gib }),
    replica('embed', 1, two, [two.devices[0]], { memory_bytes: 8 * gib }),
    replica('embed', 2, lost, [lost.devices[0]], { memory_bytes: 8 * gib, state: 'unready', report_age_s: 74, reason: 'no report of gpu-3 for 74 s' }),
    replica('tokens', 0, plain, [], { memory_bytes: 2 * gib }),
    replica('render', 0, big, [], { state: 'backing_off', failures: 3, memory_bytes: 0, reason: `ended with status 127: render-worker is not installed; next start on ${g[6].id} in 8 s` }),
  ];
  for (const item of replicas) [big, two, lost, plain].find((where) => where.name === item.node).replicas.push(item);

  return {
    nodes: [plain, big, two, lost],
    replicas,
    deployments: [
      deployment('chat', 4, 2, 'updating', { revision: 5, updated: 3, reason: '1 of 4 replicas has no place; 1 is starting' }, { gpus: 1, memory_bytes: 60 * gib, exclusive: false, command: ['vllm', 'serve', '--port', '{port}'], readiness: { http: '/health', every_s: 0.5 }, node_selector: { zone: 'a' }, serving: { path: '/chat', key: 'header:x-session' } }),
      deployment('embed', 3, 2, 'degraded', { reason: 'embed/2: no report of gpu-3 for 74 s' }, { model: 'BAAI/bge-m3', gpus: 1, memory_bytes: 8 * gib, exclusive: false }),
      deployment('large', 2, 1, 'degraded', { reason: 'large/1 is pending: no node has 2 GPUs with 120.0 GiB free' }, { gpus: 2, memory_bytes: 120 * gib, model: 'meta-llama/Llama-3.3-70B' }),
      deployment('render', 1, 0, 'paused', { reason: 'render/0 failed 3 times: ended with status 127', rollout: { paused: true, reason: 'render/0 failed 3 times: ended with status 127' } }, { runtime: 'process', gpus: 1 }),
      deployment('tokens', 1, 1, 'serving', {}, { cpu: true, memory_bytes: 2 * gib, runtime: 'process' }),
    ],
    pending: [
      { deployment: 'large', replicas: [1], reason: { kind: 'not_enough_gpus', text: 'no node has 2 GPUs with 120.0 GiB free; gpu-1 has 1', gpus_requested: 2, best_node: 'gpu-1', gpus_best: 1 } },
      { deployment: 'chat', replicas: [3], reason: { kind: 'not_in_service', text: 'gpu-2 would fit, and is draining', best_node: 'gpu-2' } },
    ],
    why: {
      'large/1': {
        text: `no node has 2 GPUs with 120.0 GiB free; gpu-1 comes nearest with ${g[7].id}`,
        funnel: [{ name: 'devices', left: 14 }, { name: 'healthy', left: 11 }, { name: 'in service', left: 7 }, { name: 'fit 120.0 GiB', left: 1 }, { name: 'pairs', left: 0 }],
        nodes: [
          { node: 'edge-1', fits: false, text: 'has no GPU' },
          { node: 'gpu-1', fits: false, text: '1 of 8 GPUs has 120.0 GiB free: 3 hold replicas of chat, 2 of large, 1 a job of ann, 1 is quarantined' },
          { node: 'gpu-2', fits: false, text: 'is draining; its GPUs have 44.9 GiB' },
          { node: 'gpu-3', fits: false, text: 'is lost' },
        ],
        changes: [{ text: 'ask for 75.0 GiB instead of 120.0 GiB' }, { text: `free 4.3 GiB on ${g[7].id} of gpu-1 (lease 12 of eve)` }, { text: 'ask for 1 GPU instead of 2' }],
      },
      'chat/3': {
        text: 'gpu-2 would fit, and is draining',
        funnel: [{ name: 'devices', left: 14 }, { name: 'in service', left: 8 }, { name: 'fit 60.0 GiB', left: 0 }],
        nodes: [{ node: 'gpu-2', fits: false, text: 'is draining' }],
        changes: [{ text: 'put gpu-2 back in service', command: 'berth uncordon node/gpu-2' }],
      },
    },
    jobs: [
      { node: 'gpu-1', kind: 'job', name: 'train', id: 'j16', user: 'ann', command: 'python', state: 'running', devices: [g[4].id], memory_bytes: 100 * gib, exclusive: false, age_s: 5400 },
      { node: 'gpu-1', kind: 'job', name: 'j17', id: 'j17', user: 'bob', command: 'python3', state: 'running', devices: [g[2].id], memory_bytes: 24 * gib, exclusive: false, age_s: 360.5 },
      { node: 'gpu-1', kind: 'lease', name: '12', user: 'eve', command: 'jupyter', state: 'running', devices: [g[7].id], memory_bytes: 20 * gib, exclusive: false, age_s: 9000 },
      { node: 'gpu-1', kind: 'job', name: 'j18', id: 'j18', user: 'bob', command: 'python3', state: 'waiting', devices: [], place: 1, devices_wanted: 2, memory_bytes: 130 * gib, exclusive: false, age_s: 42 },
    ],
    events: [
      ['server', 'controller', 'server', 'leads in epoch 3'],
      ['applied', 'user:ann', 'chat', 'revision 5: memory 40.0 GiB -> 60.0 GiB'],
      ['rollout', 'controller', 'chat', 'chat goes from revision 4 to 5, one more at a time'],
      ['intent', 'user:ann', 'node/gpu-2', 'gpu-2 is draining'],
      ['device', 'node:gpu-1', `node/gpu-1/${g[6].id}`, `${g[6].id} is quarantined: the driver requires a reset (Xid 79)`],
      ['node', 'controller', 'node/gpu-3', 'gpu-3 is lost: no report for 30 s'],
      ['failed', 'node:gpu-1', 'render/0', 'ended with status 127: render-worker is not installed'],
      ['pending', 'controller', 'large/1', 'no node has 2 GPUs with 120.0 GiB free; gpu-1 has 1'],
      ['assigned', 'controller', 'chat/2', 'goes to gpu-1'],
      ['ready', 'node:gpu-1', 'chat/1', 'is ready on gpu-1'],
    ].map(([kind, actor, subject, text], i) => ({ id: 100 + i, at_ms: begin_ms - (10 - i) * 37_000, kind, actor, subject, text })),
    gateways: [{ name: 'edge', address: '10.0.0.7:8081', reports: true }, { name: 'head', address: '127.0.0.1:8081', reports: false }],
    served: [
      served('chat', replicas, { path: '/chat', key: 'header:x-session' }, traffic(312.4, 41, [84.2, 391, 1320, 4870], { waiting: 3, rejected_per_s: 0.05 }), [
        traffic(234.3, 32, [81.3, 402, 1290, 4910]),
        traffic(78.1, 9, [90.4, 350, 1410, 4700], { failed_per_s: 1.5, ejected_by: ['edge'] }),
      ]),
      served('embed', replicas, { host: 'embed.example' }, traffic(0, 0), [traffic(0, 0), traffic(0, 0), traffic(0, 0)]),
      served('tokens', replicas, { path: '/tokens' }),
    ],
    shards: [
      {
        name: 'chat', key: 'header:x-session', affinity: 'bounded_load', epoch: 3, shards: 4096, shards_moved: 1024,
        owners: [{ replica: 'chat/0', shards: 1366, state: 'ready' }, { replica: 'chat/1', shards: 1365, state: 'ready' }, { replica: 'chat/2', shards: 1365, state: 'gone' }],
      },
    ],
    project: { name: 'studio', version: 42 },
    revision: 1207,
  };
}

// 200 nodes of eight GPUs, 2,000 replicas.
export function large_fleet(count = 200) {
  const random = random_from(11);
  const fleet = { ...empty_fleet(), project: { name: 'hall-2', version: 9 } };
  const names = ['chat', 'embed', 'rerank', 'vision', 'speech'];
  const counts = Object.fromEntries(names.map((name) => [name, 0]));
  for (let n = 0; n < count; n += 1) {
    const rack = node(`rack-${String(n + 1).padStart(3, '0')}`, { labels: { zone: 'abcd'[n % 4] } });
    rack.devices = Array.from({ length: 8 }, (_, i) => gpu(random, i, 'NVIDIA H100 80GB HBM3', 79.6, '9.0'));
    for (const device of rack.devices) {
      for (let i = Math.floor(random() * 3); i > 0; i -= 1) {
        const name = names[Math.floor(random() * names.length)];
        const index = counts[name]++;
        busy(hold(device, 'replica', `${name}/${index}`, 'svc', 24, 16 + 8 * random()), random());
        fleet.replicas.push(replica(name, index, rack, [device], { memory_bytes: 24 * gib }));
      }
      if (random() < 0.12) hold(device, 'job', `j${n}`, 'bob', 16);
      if (random() < 0.06) hold(device, 'foreign', 'python3', 'eve', 10 * random());
      if (random() < 0.008) device.health = 'quarantined';
      if (random() < 0.01) device.health = 'suspect';
    }
    if (n % 67 === 40) Object.assign(rack, { health: 'lost', last_report_age_s: 95 });
    if (n % 50 === 21) rack.intent = 'cordoned';
    fleet.nodes.push(rack);
  }
  fleet.deployments = names.map((name) => deployment(name, counts[name], counts[name], 'serving', {}, { gpus: 1, memory_bytes: 24 * gib, exclusive: false }));
  fleet.served = names.map((name) => served(name, fleet.replicas, { path: `/${name}` }));
  return fleet;
}

export function empty_fleet() {
  return { nodes: [], replicas: [], deployments: [], pending: [], why: {}, jobs: [], events: [], served: [], shards: [], gateways: [], project: { name: 'studio', version: 0 }, revision: 1 };
}

// What time does to a fleet: load moves, memory follows.
export function tick(fleet, random = Math.random) {
  for (const host of fleet.nodes) {
    if (host.health === 'lost') continue;
    for (const device of host.devices) {
      if (device.utilization === undefined || device.holders.length === 0) continue;
      busy(device, Math.min(1, Math.max(0, device.utilization + (random() - 0.5) * 0.1)));
    }
  }
}

export function status_of(fleet) {
  const live = fleet.nodes.filter((host) => host.health !== 'lost').flatMap((host) => host.devices.map((device) => ({ device, host })));
  const out = live.filter(({ device, host }) => device.health !== 'healthy' || device.intent !== 'in_service' || host.intent !== 'in_service');
  const used = live.filter((entry) => !out.includes(entry) && entry.device.holders.length > 0);
  const sum = (key) => live.filter(({ device }) => device.backend === 'cuda').reduce((total, { device }) => total + (device[key] ?? 0), 0);
  const health = (name) => fleet.nodes.filter((host) => host.health === name).length;
  return {
    version: '0.9.0', server: 'box-1', epoch: 3, now_at_ms: Date.now(), started_at_ms: begin_ms, project: fleet.project,
    nodes: { total: fleet.nodes.length, healthy: health('healthy'), suspect: health('suspect'), lost: health('lost'), cordoned: fleet.nodes.filter((host) => host.intent !== 'in_service').length },
    devices: {
      total: live.length, gpus: live.filter(({ device }) => device.backend === 'cuda').length, free: live.length - out.length - used.length, in_use: used.length, unavailable: out.length,
      memory_bytes_total: sum('memory_bytes_total'), memory_bytes_free: sum('memory_bytes_free'),
    },
    deployments: fleet.deployments.map(({ spec, rollout, ...summary }) => summary),
    pending: fleet.pending,
    warnings: fleet.warnings,
  };
}

export function history_of(device) {
  const random = random_from(3);
  const end_ms = Date.now();
  const count = 720;
  const result = { t_ms: [], memory_bytes_used: [], utilization: [], temperature_celsius: [] };
  let load = device.utilization ?? 0;
  for (let i = 0; i < count; i += 1) {
    load = Math.min(1, Math.max(0, load + (random() - 0.5) * 0.12 + ((device.utilization ?? 0) - load) * 0.02));
    const gap = (i > 300 && i < 330) || (device.health === 'lost' && i > 600);
    result.t_ms.push(Math.round(end_ms - (count - 1 - i) * 5000));
    result.memory_bytes_used.push(gap ? null : Math.round((device.memory_bytes_total - (device.memory_bytes_free ?? 0)) * (i < 180 ? 0.25 : 1) * (0.97 + 0.03 * random())));
    result.utilization.push(gap ? null : Number(load.toFixed(3)));
    result.temperature_celsius.push(gap ? null : Math.round(36 + 38 * load + random() * 2));
  }
  if (device.temperature_celsius === undefined && device.health !== 'lost') delete result.temperature_celsius;
  return result;
}
