import assert from 'node:assert/strict';
import test from 'node:test';

import { withoutAccess } from '../src/accesslog.ts';
import { plain } from '../src/ansi.ts';

const AT = '[W 2026-11-22 18:43:13.123 ServerApp]';

test('requests to the server are left out, what the user and the server print stays', () => {
  const lines = [
    'epoch 1: loss 0.3',
    '[I 2026-11-22 18:43:13.123 ServerApp log:192] 200 GET /user/ann/lab (ann@127.0.0.1) 1.10ms',
    '2026-11-22T18:43:13.123456789Z [I 2026-11-22 18:43:13.123 LabApp] 302 GET /lab (@::1) 2ms',
    `\u001b[33m${AT}\u001b[m 404 GET /user/ann/no-such-page (ann@::1) 3.20ms referer=None`,
    `${AT} {`,
    '      "Host": "hub"',
    '}',
    '[I 2026-11-22 18:43:13.123 ServerApp] Kernel started: 1f',
    'GET / is what I print myself',
    '{',
    '}'
  ];
  assert.deepEqual(withoutAccess(lines, plain), [
    lines[0],
    lines[7],
    lines[8],
    lines[9],
    lines[10]
  ]);
});
