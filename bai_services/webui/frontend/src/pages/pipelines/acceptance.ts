import { ApiError } from '../../data/client';

// In the details of an error: the request is allowed with `accepts_files`.
const ACCEPT_FILES = 'pipeline.accept-files';

/** Whether a run was refused because the user must accept the files of the pipeline. */
export const needsAcceptance = (error: Error | null) =>
  error instanceof ApiError && error.details.action === ACCEPT_FILES;
