import i18next from 'i18next';
import { beforeAll, expect, test } from 'vitest';
import en from '../src/i18n/en';
import { optionTexts } from '../src/pages/resourceGroups/schedulerOptions';

beforeAll(() => i18next.init({ lng: 'en', resources: { en: { translation: en } } }));

test.each([
  [{}, []],
  [{ preemption: { enabled: true, grace: 5 } }, ['Preemption: on']],
  [{ preemption: {} }, ['Preemption: off']],
  [
    { lost_agents: { requeue_after: 45 } },
    ['Start batch sessions of an unreachable agent elsewhere after: 45 sec']
  ],
  [
    { lost_agents: { requeue_after: 0 } },
    ['Start batch sessions of an unreachable agent elsewhere after: off']
  ],
  [{ placement: 'spread', backfill: 'off' }, ['Placement: spread', 'Backfill: off']],
  [{ pending_timeout: 7200 }, ['Longest wait in the queue: 2 hr']],
  [{ pending_timeout: 0 }, ['Longest wait in the queue: off']],
  [{ allow_fractional_resource_fragmentation: true }, ['Shares in uneven parts: on']],
  [
    {
      fair_share: {
        half_life_days: 3.5,
        weights: { domain: { labs: 2 }, user: { u1: 0.5 } },
        resource_weights: { cpu: 1, mem: 0 }
      }
    },
    [
      'Fair share, half-life (days): 3.5',
      'Fair share, weights: domain labs=2, user u1=0.5',
      'Fair share, weights of resources: cpu=1, mem=0'
    ]
  ],
  [{ of_a_newer_version: 3 }, ['of_a_newer_version: 3']]
])('%j is shown as %j', (options, texts) => {
  expect(optionTexts(options)).toEqual(texts);
});
