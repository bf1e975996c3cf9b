import { graphlib, layout } from '@dagrejs/dagre';

export interface GraphTask {
  name: string;
  kind: string;
  needs: readonly string[];
  /** Status of the task in a run; undefined in an editor. */
  status?: string;
  /** Number of task runs of a mapped task, and how many of them have ended. */
  count?: { total: number; ended: number };
  /** The outputs of all task runs were taken from an earlier run. */
  isCached?: boolean;
}

/** Place of a task; that of a task in a sub-pipeline is relative to the containing task. */
export interface Place {
  x: number;
  y: number;
  width: number;
  height: number;
  /** Name of the containing task. */
  parent?: string;
}

export const NODE = { width: 210, height: 56 } as const;
/** A containing task has a header with its name and status, and a margin around its tasks. */
const HEADER = 56;
const MARGIN = 16;
const SEPARATOR = '/';

const parentOf = (name: string) => name.slice(0, Math.max(name.lastIndexOf(SEPARATOR), 0));
/** The names of the tasks that contain a task, the outermost first, and the task itself. */
const pathOf = (name: string) => {
  const parts = name.split(SEPARATOR);
  return parts.map((_, index) => parts.slice(0, index + 1).join(SEPARATOR));
};
export const shortName = (name: string) => name.slice(name.lastIndexOf(SEPARATOR) + 1);

function grouped<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group) {
      group.push(item);
    } else {
      groups.set(key, [item]);
    }
  }
  return groups;
}

/**
 * Return the place of each task, to the right of its dependencies or, with `isVertical`, below them.
 * The tasks of a sub-pipeline are inside the containing task.
 */
export function positionsOf(tasks: readonly GraphTask[], isVertical = false): Map<string, Place> {
  const levels = grouped(
    tasks.map(({ name }) => name),
    parentOf
  );
  const edges = shownEdges(tasks);
  const places = new Map<string, Place>();
  const arrange = (parent: string): { width: number; height: number } => {
    const graph = new graphlib.Graph();
    graph.setGraph(
      isVertical
        ? { rankdir: 'TB', nodesep: 24, ranksep: 32 }
        : { rankdir: 'LR', nodesep: 24, ranksep: 60 }
    );
    graph.setDefaultEdgeLabel(() => ({}));
    const names = levels.get(parent) ?? [];
    for (const name of names) {
      graph.setNode(name, levels.has(name) ? arrange(name) : { ...NODE });
    }
    for (const { source, target } of edges) {
      if (graph.hasNode(source) && graph.hasNode(target)) {
        graph.setEdge(source, target);
      }
    }
    layout(graph);
    const inner = parent ? { parent } : {};
    const shift = parent ? { x: MARGIN, y: HEADER } : { x: 0, y: 0 };
    for (const name of names) {
      const { x, y, width, height } = graph.node(name);
      const left = x - width / 2 + shift.x;
      places.set(name, { x: left, y: y - height / 2 + shift.y, width, height, ...inner });
    }
    const { width = 0, height = 0 } = graph.graph();
    return { width: width + 2 * MARGIN, height: height + HEADER + MARGIN };
  };
  arrange('');
  return places;
}

/**
 * Return the edges between tasks of the same level: the dependency of a task on a task outside its
 * sub-pipeline is one of the containing task.
 */
export function shownEdges(tasks: readonly GraphTask[]): { source: string; target: string }[] {
  const edges = new Map<string, { source: string; target: string }>();
  for (const { name, needs } of tasks) {
    const target = pathOf(name);
    for (const need of needs) {
      const source = pathOf(need);
      const level = source.findIndex((each, index) => each !== target[index]);
      const [from, to] = [source[level], target[level]];
      // No edge if the task follows a task that it contains.
      if (from !== undefined && to !== undefined) {
        edges.set(`${from}→${to}`, { source: from, target: to });
      }
    }
  }
  return [...edges.values()];
}

/** A row of a table with the rows of its sub-pipeline; `label` is the name without prefix. */
export type Nested<T> = T & { label: string; children?: Nested<T>[] };

/** Nest task runs in the runs of the tasks that contain them. */
export function nestedRuns<T extends { task: string }>(runs: readonly T[]): Nested<T>[] {
  const all = runs.map((run): Nested<T> => ({ ...run, label: shortName(run.task) }));
  const containers = new Map(all.map(row => [row.task, row]));
  const levels = grouped(all, ({ task }) => parentOf(task));
  for (const [parent, rows] of levels) {
    const container = containers.get(parent);
    if (container) {
      container.children = rows;
    }
  }
  // Return rows without their containing task, too: a selection may lack it.
  return [...levels].flatMap(([parent, rows]) => (containers.has(parent) ? [] : rows));
}

/** Return whether a task is `container`, or inside its sub-pipeline. */
export const isInside = (task: string, container: string) =>
  task === container || task.startsWith(container + SEPARATOR);

const OPEN = ['awaiting-approval', 'running', 'queued', 'retrying', 'waiting'];
const WORST = ['failed', 'blocked', 'cancelled'];

/** Combine the task runs of each task into one task. */
export function tasksOfRuns(
  runs: readonly {
    task: string;
    kind: string;
    needs: readonly string[];
    status: string;
    is_cached: boolean;
  }[]
): GraphTask[] {
  const byTask = grouped(runs, ({ task }) => task);
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
        isCached: own.every(run => run.is_cached),
        ...(own.length > 1 && { count: { total: own.length, ended } })
      }
    ];
  });
}
