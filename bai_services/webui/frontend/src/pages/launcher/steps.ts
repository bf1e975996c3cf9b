import type { SessionPreview } from '../../data/sessions/launch';

/** The steps of the launcher; the last one is the review, next to or below the form. */
export const STEPS = ['type', 'resources', 'folders', 'network', 'review'] as const;
export type Step = (typeof STEPS)[number];

export const sectionId = (step: Step) => `section-${step}`;

/** The step that contains a field of a request. Fields that are not listed are in `resources`. */
const FIELDS = new Map<string, Step>([
  ['type', 'type'],
  ['owner', 'type'],
  ['name', 'type'],
  ['startup_command', 'type'],
  ['starts_at', 'type'],
  ['batch_timeout', 'type'],
  ['mounts', 'folders'],
  ['preopen_ports', 'network'],
  ['dependencies', 'network'],
  ['priority', 'network'],
  ['job_priority', 'network'],
  ['is_preemptible', 'network'],
  ['callback_url', 'network']
]);

/** The steps whose fields have problems. */
export function stepsWithProblems(preview: SessionPreview | undefined): Set<Step> {
  return new Set(
    preview?.problems.map(({ field }) => FIELDS.get(field.split('.')[0] ?? '') ?? 'resources')
  );
}
