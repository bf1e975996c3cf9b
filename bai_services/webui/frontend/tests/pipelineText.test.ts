import { describe, expect, it } from 'vitest';
import {
  addTask,
  connectTasks,
  disconnectTasks,
  isEditable,
  makesCycle,
  removeTasks
} from '../src/pages/pipelines/pipelineText';

const TEXT = `version: 1
name: example # the name
tasks:
# first
- {name: a, command: x}
- name: b
  needs: [a]
  command: |
    one
    two
- {name: c, command: y, needs: [a, b]}
`;

describe('changes of the YAML of a pipeline', () => {
  it('adds a task after another one and keeps comments', () => {
    expect(addTask(TEXT, 'approval', 'b')).toEqual({
      text: `${TEXT}- {name: approval-1, kind: approval, needs: [b]}\n`,
      result: 'approval-1'
    });
  });

  it('gives each added task an unused name', () => {
    const first = addTask(TEXT, 'command');
    expect(addTask(first?.text ?? '', 'command')?.result).toBe('command-2');
  });

  it('connects tasks once', () => {
    const text = connectTasks(TEXT, 'a', 'b')?.text;
    expect(text).toBe(TEXT);
    const other = TEXT.replace('[a, b]', '[a]');
    expect(connectTasks(other, 'b', 'c')?.text).toBe(TEXT);
    expect(connectTasks(TEXT, 'c', 'a')?.text).toContain('{name: a, command: x, needs: [c]}');
  });

  it('removes a dependency, and the list if it is empty', () => {
    expect(disconnectTasks(TEXT, [{ source: 'a', target: 'c' }])?.text).toBe(
      TEXT.replace('[a, b]', '[b]')
    );
    expect(disconnectTasks(TEXT, [{ source: 'a', target: 'b' }])?.text).toBe(
      TEXT.replace('  needs: [a]\n', '')
    );
  });

  it('removes tasks from the needs of others', () => {
    const text = removeTasks(TEXT, ['b'])?.text;
    expect(text).toContain('{name: c, command: y, needs: [a]}');
    expect(text).not.toContain('two');
  });

  it('does not change texts that are not pipelines', () => {
    for (const text of ['tasks: 3', '{', 'a: [', '']) {
      expect(isEditable(text)).toBe(false);
      expect(addTask(text, 'command')).toBeUndefined();
    }
  });

  it('finds cycles', () => {
    const tasks = [
      { name: 'a', needs: [] },
      { name: 'b', needs: ['a'] },
      { name: 'c', needs: ['b'] }
    ];
    expect(makesCycle(tasks, 'c', 'a')).toBe(true);
    expect(makesCycle(tasks, 'a', 'a')).toBe(true);
    expect(makesCycle(tasks, 'a', 'c')).toBe(false);
  });
});
