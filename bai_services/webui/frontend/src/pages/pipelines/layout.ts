import { graphlib, layout } from '@dagrejs/dagre';

export interface GraphTask {
  name: string;
  kind: string;
  needs: readonly string[];
  /** Status of the task in a run; undefined in an editor. */
  status?: string;
  /** Number of task runs of a mapped task, and how many of them have ended. */
  count?: { total: number; ended: number };
}

export const NODE = { width: 190, height: 56 } as const;

/** Return the position of each task, to the right of its dependencies. */
export function positionsOf(tasks: readonly GraphTask[]): Map<string, { x: number; y: number }> {
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: 'LR', nodesep: 24, ranksep: 60 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { name } of tasks) {
    graph.setNode(name, { ...NODE });
  }
  for (const { name, needs } of tasks) {
    for (const need of needs) {
      graph.setEdge(need, name);
    }
  }
  layout(graph);
  return new Map(
    tasks.map(({ name }) => {
      const { x, y } = graph.node(name);
      return [name, { x: x - NODE.width / 2, y: y - NODE.height / 2 }];
    })
  );
}

const OPEN = ['awaiting-approval', 'running', 'queued', 'retrying', 'waiting'];
const WORST = ['failed', 'blocked', 'cancelled'];

/** Combine the task runs of each task into one task. */
export function tasksOfRuns(
  runs: readonly { task: string; kind: string; needs: readonly string[]; status: string }[]
): GraphTask[] {
  const byTask = new Map<string, typeof runs>();
  for (const run of runs) {
    byTask.set(run.task, [...(byTask.get(run.task) ?? []), run]);
  }
  return [...byTask].flatMap(([name, own]) => {
    const [first] = own;
    if (!first) {
      return [];
    }
    const statuses = own.map(({ status }) => status);
    const shown = [...OPEN, ...WORST].find(status => statuses.includes(status));
    const ended = statuses.filter(status => !OPEN.includes(status)).length;
    return [
      {
        name,
        kind: first.kind,
        // A task with `for_each` over an empty list has no task runs, so it is not in the graph.
        needs: first.needs.filter(need => byTask.has(need)),
        status: shown ?? first.status,
        ...(own.length > 1 && { count: { total: own.length, ended } })
      }
    ];
  });
}
