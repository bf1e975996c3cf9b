import { expect, test } from 'vitest';
import { definitionOf, fieldOfProblem } from '../src/pages/models/definition';

test('a definition has the filled-in fields, quoted for YAML', () => {
  const text = definitionOf('tiny', {
    title: 'Tiny: "the" model # 1',
    version: '1.0',
    author: ' ',
    description: 'one\ntwo',
    framework: ['python', 'onnx'],
    label: [],
    cpu: '1',
    mem: '',
    command: 'exec python3 server.py',
    port: 8000
  });
  expect(text).toBe(`models:
- name: "tiny"
  metadata:
    title: "Tiny: \\"the\\" model # 1"
    version: "1.0"
    description: "one\\ntwo"
    framework: ["python","onnx"]
    min_resource:
      cpu: "1"
  service:
    start_command: "exec python3 server.py"
    port: 8000
`);
});

test('without a command, there is no service', () => {
  expect(definitionOf('a', { title: 'A', port: 8000 })).not.toContain('service');
});

test.each([
  ['model-definition.yaml: title has more than 255 characters', 'title'],
  ['model-definition.yaml, line 9: port must be a number', 'port'],
  ['model-definition.yaml: min_resource must be a mapping', 'cpu'],
  ['something else', undefined]
])('%j is shown at %s', (problem, field) => {
  expect(fieldOfProblem(problem)).toBe(field);
});
