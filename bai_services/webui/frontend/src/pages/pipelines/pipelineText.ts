import { isMap, isScalar, isSeq, parseDocument, type Document, type YAMLSeq } from 'yaml';

/** Changes of the YAML of a pipeline that keep its comments and its format. */

const FORMAT = { lineWidth: 0, flowCollectionPadding: false } as const;
const UNINDENTED = /^tasks:[^\n]*\n(?:[ ]*#[^\n]*\n)*-/m;
const MAX_NAME = 40;

/** Return whether the tasks of a text can be changed: it is YAML with a list of tasks. */
export const isEditable = (text: string) => parsed(text) !== undefined;

/** Add a task of a kind, after `need` if given; return the new text and the name of the task. */
export function addTask(text: string, kind: string, need?: string) {
  return changed(text, (document, tasks) => {
    const name = unusedName(tasks, kind);
    const task = {
      name,
      ...(kind === 'command' ? {} : { kind }),
      ...FIELDS[kind],
      ...(need === undefined ? {} : { needs: [need] })
    };
    const node = document.createNode(task, { flow: true });
    tasks.add(node);
    return name;
  });
}

/** Fields that a task of a kind must have. */
const FIELDS: Record<string, Record<string, unknown>> = {
  command: { command: 'echo done' },
  notebook: { notebook: 'notebook.ipynb' },
  pipeline: { pipeline: 'name' }
};

/** Remove tasks, also from `needs` of the others. */
export function removeTasks(text: string, names: readonly string[]) {
  return changed(text, (_, tasks) => {
    tasks.items = tasks.items.filter(task => !names.includes(nameOf(task)));
    for (const task of tasks.items) {
      for (const name of names) {
        removeNeed(task, name);
      }
    }
  });
}

/** Let the task `target` need the task `source`. */
export function connectTasks(text: string, source: string, target: string) {
  return changed(text, (document, tasks) => {
    const task = tasks.items.find(each => nameOf(each) === target);
    if (!isMap(task)) {
      return;
    }
    const needs = task.get('needs', true) as unknown;
    if (!isSeq(needs)) {
      task.set('needs', document.createNode([source], { flow: true }));
    } else if (!needs.items.some(need => textOf(need) === source)) {
      needs.add(document.createNode(source));
    }
  });
}

/** Remove dependencies. */
export function disconnectTasks(
  text: string,
  edges: readonly { source: string; target: string }[]
) {
  return changed(text, (_, tasks) => {
    for (const { source, target } of edges) {
      removeNeed(
        tasks.items.find(each => nameOf(each) === target),
        source
      );
    }
  });
}

/** Return whether the task `target` would need itself if it needed `source`. */
export function makesCycle(
  tasks: readonly { name: string; needs: readonly string[] }[],
  source: string,
  target: string
) {
  const needs = new Map(tasks.map(task => [task.name, task.needs]));
  const seen = new Set<string>();
  const open = [source];
  for (let name = open.pop(); name !== undefined; name = open.pop()) {
    if (name === target) {
      return true;
    }
    if (!seen.has(name)) {
      seen.add(name);
      open.push(...(needs.get(name) ?? []));
    }
  }
  return false;
}

interface Changed<T> {
  text: string;
  result: T;
}

function changed<T>(
  text: string,
  change: (document: Document, tasks: YAMLSeq) => T
): Changed<T> | undefined {
  const found = parsed(text);
  if (!found) {
    return undefined;
  }
  const result = change(found.document, found.tasks);
  const indentSeq = !UNINDENTED.test(text);
  return { text: found.document.toString({ ...FORMAT, indentSeq }), result };
}

function parsed(text: string) {
  const document: Document = parseDocument(text, { maxAliasCount: 0 } as object);
  const tasks = document.errors.length > 0 ? undefined : document.get('tasks', true);
  return isSeq(tasks) ? { document, tasks: tasks } : undefined;
}

function removeNeed(task: unknown, name: string) {
  if (!isMap(task)) {
    return;
  }
  const map = task;
  const needs = map.get('needs', true) as unknown;
  if (!isSeq(needs)) {
    return;
  }
  needs.items = needs.items.filter(need => textOf(need) !== name);
  if (needs.items.length === 0) {
    map.delete('needs');
  }
}

function unusedName(tasks: YAMLSeq, kind: string) {
  const used = new Set(tasks.items.map(nameOf));
  for (let number = 1; ; number += 1) {
    const name = `${kind}-${String(number)}`.slice(0, MAX_NAME);
    if (!used.has(name)) {
      return name;
    }
  }
}

const nameOf = (task: unknown) => (isMap(task) ? textOf(task.get('name', true)) : '');

const textOf = (node: unknown) => (isScalar(node) ? String(node.value) : '');
