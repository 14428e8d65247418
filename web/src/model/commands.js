// Every command that the page tells its reader to run, in one place.

/** @type {(text: string) => string} */
const quote = (text) => (/^[\w./:@=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

export const join_node = () => `berth agent --join ${location.origin}`;
export const first_project = 'berth init && berth apply berth.toml';
export const apply = 'berth apply FILE';
/** @type {(name: string) => string} */
export const logs = (replica) => `berth logs -f ${quote(replica)}`;
/** @type {(name: string) => string} */
export const why = (replica) => `berth why replica ${quote(replica)}`;
/** @type {(name: string) => string} */
export const cordon_node = (node) => `berth cordon ${quote(`node/${node}`)}`;
/** @type {(name: string) => string} */
export const drain_node = (node) => `berth drain ${quote(`node/${node}`)}`;
/** @type {(name: string) => string} */
export const uncordon_node = (node) => `berth uncordon ${quote(`node/${node}`)}`;
/** @type {(node: string, device: string) => string} */
export const cordon_device = (node, device) => `berth cordon ${quote(`node/${node}/${device}`)}`;
/** @type {(node: string, device: string) => string} */
export const drain_device = (node, device) => `berth drain ${quote(`node/${node}/${device}`)}`;
/** @type {(node: string, device: string) => string} */
export const uncordon_device = (node, device) => `berth uncordon ${quote(`node/${node}/${device}`)}`;
/** @type {(action: string, deployment: string) => string} */
export const rollout = (action, deployment) => `berth rollout ${action} ${quote(deployment)}`;
export const job = 'berth run -d --mem 20G -- COMMAND';
/** @type {(name: string) => string} */
export const job_logs = (name) => `berth logs -f ${quote(name)}`;

// What to run about replicas that fit nowhere, by the kind of the reason.
/** @type {(pending: { reason?: import('../live/answers').Pending['reason'] }, name: string) => { text: string, command: string }} */
export function next_step(pending, name) {
  switch (pending.reason?.kind) {
    case 'no_nodes':
    case 'no_gpu_nodes':
    case 'no_egress_nodes':
      return { text: 'Add a node', command: join_node() };
    case 'not_in_service':
      return pending.reason.best_node
        ? { text: 'Put it back in service', command: uncordon_node(pending.reason.best_node) }
        : { text: 'List the nodes that are out of service', command: 'berth nodes' };
    case 'invalid_spec':
    case 'zero_gpus':
    case 'unknown_transport':
      return { text: 'Correct the project and apply it again', command: apply };
    default:
      return { text: 'Show the whole decision', command: why(name) };
  }
}
