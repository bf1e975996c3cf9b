import { numberOf } from '../../components/amount';
import type { SessionOptions } from '../../data/sessions/launch';

/**
 * Whether a session with a preset could start now, would wait in the queue, or would be refused.
 * Each state except `now` has a text `launcher.preset-…`.
 */
export type PresetState = 'now' | 'waits' | 'over-limit' | 'too-large';

type Preset = SessionOptions['presets'][number];

export function presetState(
  { allocatable, resources }: Pick<Preset, 'allocatable' | 'resources'>,
  limits: SessionOptions['limits']
): PresetState {
  if (allocatable) {
    return 'now';
  }
  const exceeds = (bound: 'allowed' | 'largest') =>
    Object.entries(resources).some(([slot, amount]) => {
      const limit = limits[slot]?.[bound];
      return limit != null && numberOf(amount) > numberOf(limit);
    });
  return exceeds('allowed') ? 'over-limit' : exceeds('largest') ? 'too-large' : 'waits';
}
