// What passes through the gateways, from the answer of /api/v1/endpoints. Rates and times are of the last ten to twenty seconds.

// Whether there was nothing to count. Requests that still run, such as streams, are requests; and what is not known is not nothing.
/** @typedef {import('../live/answers').Endpoint} Endpoint @typedef {import('../live/answers').ServedDeployment} ServedDeployment */
/** @type {(traffic: import('../live/answers').Traffic | undefined) => boolean} */
export function is_quiet(traffic) {
  return traffic?.requests_per_s === 0 && !traffic.waiting && !traffic.in_flight;
}

// Which part of a deployment's requests each of its replicas computes, by the name of the endpoint. Without those of which it is not known;
// empty where there were no requests.
/** @type {(endpoints: Endpoint[]) => Map<string, number>} */
export function shares_of(endpoints) {
  const known = endpoints.filter((endpoint) => endpoint.traffic?.requests_per_s !== undefined);
  const sum = known.reduce((total, endpoint) => total + (endpoint.traffic?.requests_per_s ?? 0), 0);
  return new Map(sum > 0 ? known.map((endpoint) => [endpoint.name, (endpoint.traffic?.requests_per_s ?? 0) / sum]) : []);
}

// Those with the most requests first. Empty where there are no keys: what passes without one is in the figures of the deployments.
/** @type {(answer: import('../live/answers').Endpoints | undefined) => import('../live/answers').Endpoints['callers']} */
export function callers_of(answer) {
  const callers = answer?.callers ?? [];
  if (callers.every((caller) => caller.id === 'local')) return [];
  return [...callers].sort((a, b) => (b.traffic.requests_per_s ?? 0) - (a.traffic.requests_per_s ?? 0));
}

// "chat/0#17" is the incarnation 17 of replica 0 of chat.
/** @type {(endpoint: Endpoint) => string[]} */
export function replica_of(endpoint) {
  return endpoint.name.replace(/#.*/, '').split('/');
}

// A replica that takes requests may be left out by gateways for a while.
/** @type {(endpoint: Endpoint) => string} */
export function endpoint_state(endpoint) {
  return endpoint.traffic?.ejected_by?.length ? 'ejected' : endpoint.state;
}
