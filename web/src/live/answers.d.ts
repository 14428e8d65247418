// The answers of the API as the page has them: the types of docs/reference/openapi.json (web/check makes api.d.ts from it), in which ages have become
// moments on this browser's clock (live/reconcile.js).
import type { components } from '../../check/api';

type Schemas = components['schemas'];

type Moments<T> = T extends (infer U)[]
  ? Moments<U>[]
  : T extends object
    ? { [K in keyof T as K extends `${infer P}_age_${'s' | 'ms'}` ? `${P}_at` : K extends `age_${'s' | 'ms'}` ? 'at' : K]: Moments<T[K]> }
    : T;

export type Node = Moments<Schemas['Node']>;
export type Device = Node['devices'][number];
export type Replica = Moments<Schemas['Replica']>;
export type Deployment = Moments<Schemas['Deployment']>;
export type Spec = Moments<Schemas['Spec']>;
export type Pending = Moments<Schemas['Pending']>;
export type Job = Moments<Schemas['Jobs']>['jobs'][number];
export type Event = Moments<Schemas['Event']>;
export type Status = Moments<Schemas['Status']>;
export type Endpoints = Moments<Schemas['Endpoints']>;
// With the states that replicas have (model/traffic.js).
export type Endpoint = Omit<NonNullable<Endpoints['deployments'][number]['endpoints']>[number], 'state'> & { state: string };
export type ServedDeployment = Omit<Endpoints['deployments'][number], 'endpoints'> & { endpoints?: Endpoint[] };
export type Traffic = Moments<Schemas['Traffic']>;
export type History = Schemas['History'];
export type Why = Moments<Schemas['OneReplica']>['why'];
export type Applied = Schemas['Applied'];
export type Plan = Schemas['Plan'];

// What a path answers with. The longer of two patterns that match comes first.
export type AnswerOf<P extends string> = P extends 'status'
  ? Status
  : P extends 'session'
    ? Schemas['Session']
    : P extends `nodes/${string}/history?${string}`
      ? History
      : P extends `nodes/${string}`
        ? Moments<Schemas['OneNode']>
        : P extends 'nodes'
          ? Moments<Schemas['Nodes']>
          : P extends `deployments/${string}`
            ? Moments<Schemas['OneDeployment']>
            : P extends 'deployments'
              ? Moments<Schemas['Deployments']>
              : P extends `replicas/${string}`
                ? Moments<Schemas['OneReplica']>
                : P extends `replicas${string}`
                  ? Moments<Schemas['Replicas']>
                  : P extends 'jobs'
                    ? Moments<Schemas['Jobs']>
                    : P extends `events${string}`
                      ? Moments<Schemas['Events']>
                      : P extends 'endpoints'
                        ? Endpoints
                        : P extends 'shards'
                          ? Moments<Schemas['Shards']>
                          : never;

export interface Watched<T> {
  readonly value: T | undefined;
  readonly problem: { status: number; message: string; advice?: string } | undefined;
}
