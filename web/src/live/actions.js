// Changes that the page can ask for. Each is a function that asks for the plan (`dry_run`), or makes the change for which `planned` is the
// answer with the plan.
/** @typedef {(asked: { dry_run?: boolean, planned?: { version: number }, reason?: string }) => Promise<any>} Ask */
import { request } from './api.js';

const part = encodeURIComponent;
/** @param {boolean | undefined} dry_run */
const only_plan = (dry_run) => (dry_run ? { dry_run: true } : {});

/** @type {(node: string, intent: string) => Ask} */
export const set_node_intent = (node, intent) => (asked) => set_intent(`nodes/${part(node)}/intent`, intent, asked);

/** @type {(node: string, device: string, intent: string) => Ask} */
export const set_device_intent = (node, device, intent) => (asked) => set_intent(`nodes/${part(node)}/devices/${part(device)}/intent`, intent, asked);

/** @type {(path: string, intent: string, asked: Parameters<Ask>[0]) => Promise<any>} */
const set_intent = (path, intent, { dry_run, reason }) => request(path, { method: 'PUT', body: { intent, ...(reason && { reason }), ...only_plan(dry_run) } });

// Refused if the project has changed since the plan was made.
/** @type {(deployment: string, replicas: number) => Ask} */
export const scale = (deployment, replicas) => ({ dry_run, planned }) =>
  request(`deployments/${part(deployment)}/scale`, { method: 'POST', body: { replicas, ...(planned && { if_version: planned.version }), ...only_plan(dry_run) } });

/** @type {(deployment: string, action: string, to_revision?: number) => Ask} */
export const rollout = (deployment, action, to_revision) => ({ dry_run }) =>
  request(`deployments/${part(deployment)}/rollout`, { method: 'POST', body: { action, ...(to_revision && { to_revision }), ...only_plan(dry_run) } });
