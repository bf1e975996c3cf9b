import { ApiError } from '../../data/client';

/** The fields of the folder dialogs at which an error of the API is shown. */
const FIELDS = ['name', 'host'] as const;

export type FolderField = (typeof FIELDS)[number];

/** The text of an error at a field; undefined if the error is not about the field. */
export function problemAt(field: FolderField, error: Error | null): string | undefined {
  if (!(error instanceof ApiError)) {
    return undefined;
  }
  if (error.code === 'already-exists') {
    return field === 'name' ? error.message : undefined;
  }
  return error.problems.find(problem => problem.field === field)?.problem;
}

/** Whether a part of the error is shown at no field. */
export function hasOtherProblem(error: Error): boolean {
  const shown = FIELDS.filter(field => problemAt(field, error) !== undefined).length;
  return shown === 0 || (error instanceof ApiError && error.problems.length > shown);
}
