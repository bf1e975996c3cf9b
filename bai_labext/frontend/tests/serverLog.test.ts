import assert from 'node:assert/strict';
import test from 'node:test';

import { plain } from '../src/ansi.ts';
import { withoutServerLog } from '../src/serverLog.ts';

const WARNING_PREFIX = '[W 2026-11-22 18:43:13.123 ServerApp]';

test('removes requests to the server and keeps the output of programs', () => {
  const lines = [
    'epoch 1: loss 0.3',
    '[I 2026-11-22 18:43:13.123 ServerApp log:192] 200 GET /user/ann/lab (ann@127.0.0.1) 1.10ms',
    '2026-11-22T18:43:13.123456789Z [I 2026-11-22 18:43:13.123 LabApp] 302 GET /lab (@::1) 2ms',
    `\u001b[33m${WARNING_PREFIX}\u001b[m 404 GET /user/ann/no-such-page (ann@::1) 3.20ms referer=None`,
    `${WARNING_PREFIX} {`,
    '      "Host": "hub"',
    '}',
    'GET / is what I print myself',
    '{',
    '}'
  ];
  assert.deepEqual(withoutServerLog(lines, plain), [lines[0], lines[7], lines[8], lines[9]]);
});

test("removes the server's own log, including continuation lines", () => {
  const lines = [
    '[I 2026-11-22 18:43:13.123 ServerApp] jupyterlab | extension was successfully linked.',
    "[W 2026-11-22 18:43:13.123 LabApp] Setting new xsrf cookie for b'2|a1:b2' {'path': '/'}",
    '2026-11-22T18:43:13.123456789Z [D 2026-11-22 18:43:13.123 ServerApp] Paths used:',
    '2026-11-22T18:43:13.123456789Z \u0009/etc/jupyter/jupyter_config.json',
    '\u001b[31m[E 2026-11-22 18:43:13.123 JupyterHubSingleUser singleuser:12]\u001b[m Uncaught',
    '    Traceback (most recent call last):',
    '      File "a.py", line 1, in <module>',
    '    return x',
    'epoch 1: loss 0.3',
    '    indented by the user',
    '[C 2026-11-22 18:43:13.123 ServerApp]',
    '[I 2026-11-22 18:43:13.123 trainer] my own log',
    '[INFO] ServerApp is what I print myself',
    '[I 2026-11-22 18:43:13.123 ServerApp] Kernel started: 1f'
  ];
  assert.deepEqual(withoutServerLog(lines, plain), [lines[8], lines[9], lines[11], lines[12]]);
});
