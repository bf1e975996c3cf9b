/** Error messages of a form by field name; the key '' holds those that belong to no field. */
export type Problems = Record<string, string>;

interface Reported {
  field?: string | undefined;
  problem?: string;
}

/**
 * Assign the problems in the details of an error to the fields of a form.
 *
 * A problem of `preopen_ports.0` is assigned to the field `preopen_ports`.
 */
export function problemsOf(
  message: string,
  details: Record<string, unknown>,
  fields: readonly string[]
): Problems {
  const reported: Reported[] = Array.isArray(details.problems)
    ? (details.problems as Reported[])
    : [{ field: details.field as string | undefined, problem: message }];
  const problems: Problems = {};
  for (const { field, problem } of reported) {
    const name = field ?? '';
    const own = fields.find(each => name === each || name.startsWith(`${each}.`)) ?? '';
    const text = own || !name ? (problem ?? '') : `${name}: ${problem ?? ''}`;
    problems[own] = problems[own] ? `${problems[own]}; ${text}` : text;
  }
  return problems;
}
