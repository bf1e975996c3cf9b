import { queryOptions, useMutation } from '@tanstack/react-query';
import { api, unwrap, type Schemas } from '../client';
import { queries } from '../queries';

export type Pipeline = Schemas['Pipeline'];
export type PipelineCheck = Schemas['PipelineCheck'];
export type PipelineRun = Schemas['PipelineRun'];
export type PipelineSchedule = Schemas['PipelineSchedule'];
export type PipelineTrigger = Schemas['PipelineTrigger'];
export type PipelineRunDetail = Schemas['PipelineRunDetail'];
export type PipelineResults = Schemas['PipelineResults'];
export type PipelineTemplate = Schemas['PipelineTemplate'];
export type RunApp = Schemas['PipelineRunApp'];
export type TaskRun = Schemas['PipelineTaskRun'];

export const ENDED = ['succeeded', 'failed', 'cancelled'] as const;
const REFRESH_MILLIS = 2_000;

const at = (key: string) => ({ params: { path: { key } } });
const refresh = () =>
  Promise.all([
    queries.invalidateQueries({ queryKey: ['entities', '/pipelines'] }),
    queries.invalidateQueries({ queryKey: ['entities', '/pipeline-runs'] })
  ]);

export const isEnded = (status: string) => ENDED.some(known => known === status);

export const pipelineQuery = (key: string) =>
  queryOptions({
    queryKey: ['entities', '/pipelines', key, 'one'],
    queryFn: ({ signal }) => unwrap(api.GET('/pipelines/{key}', { signal, ...at(key) }))
  });

/** A run with its tasks, polled until it has ended. */
export const runQuery = (key: string) =>
  queryOptions({
    queryKey: ['entities', '/pipeline-runs', key, 'one'],
    queryFn: ({ signal }) => unwrap(api.GET('/pipeline-runs/{key}', { signal, ...at(key) })),
    refetchInterval: ({ state }) =>
      state.data && isEnded(state.data.run.status) ? false : REFRESH_MILLIS
  });

/** The outputs and metrics of a run. */
export const resultsQuery = (key: string) =>
  queryOptions({
    queryKey: ['entities', '/pipeline-runs', key, 'results'],
    queryFn: ({ signal }) => unwrap(api.GET('/pipeline-runs/{key}/results', { signal, ...at(key) }))
  });

export const templateQuery = (key: string) =>
  queryOptions({
    queryKey: ['entities', '/pipeline-templates', key, 'one'],
    queryFn: ({ signal }) => unwrap(api.GET('/pipeline-templates/{key}', { signal, ...at(key) }))
  });

export const checkQuery = (definition: string) =>
  queryOptions({
    queryKey: ['pipeline-check', definition],
    queryFn: ({ signal }) => unwrap(api.POST('/pipeline-checks', { signal, body: { definition } })),
    gcTime: 0
  });

/**
 * Save a definition to `pipeline`, or create a pipeline if it is undefined. `project`: name of the
 * project that owns the new pipeline; empty: the user owns it.
 */
export function useSavePipeline(pipeline: Pipeline | undefined, project: string) {
  return useMutation({
    mutationFn: (definition: string) =>
      pipeline
        ? unwrap(
            api.PATCH('/pipelines/{key}', {
              ...at(pipeline.id),
              body: { definition, version: pipeline.version }
            })
          )
        : unwrap(
            api.POST('/pipelines', {
              body: { definition, project: project || null, is_project_owned: project !== '' }
            })
          ),
    onSettled: refresh
  });
}

/** Save a definition as a template of the user or, if `project` is not empty, of the project. */
export function useSaveTemplate(project: string) {
  return useMutation({
    mutationFn: (definition: string) =>
      unwrap(
        api.POST('/pipeline-templates', {
          body: { definition, project: project || null, is_project_owned: project !== '' }
        })
      ),
    onSettled: () => queries.invalidateQueries({ queryKey: ['entities', '/pipeline-templates'] })
  });
}

export type PipelineFormat = Schemas['Conversion']['target'];

/** Convert a pipeline of this or another format; nothing is stored. */
export function useConvertPipeline() {
  return useMutation({
    mutationFn: (body: { text: string; name: string; target: PipelineFormat }) =>
      unwrap(api.POST('/pipeline-conversions', { body }))
  });
}

export function useRunPipeline(key: string) {
  return useMutation({
    mutationFn: (body: Schemas['NewRun']) =>
      unwrap(api.POST('/pipelines/{key}/runs', { ...at(key), body })),
    onSettled: refresh
  });
}

export function useDeletePipeline() {
  return useMutation({
    mutationFn: (key: string) => unwrap(api.DELETE('/pipelines/{key}', at(key))),
    onSettled: refresh
  });
}

export function useCancelRun(key: string) {
  return useMutation({
    mutationFn: () => unwrap(api.DELETE('/pipeline-runs/{key}', at(key))),
    onSettled: refresh
  });
}

export function useResumeRun(key: string) {
  return useMutation({
    mutationFn: (body: Schemas['Resumption']) =>
      unwrap(api.POST('/pipeline-runs/{key}/resumption', { ...at(key), body })),
    onSettled: refresh
  });
}

/** Open an app on the directory of a run, in a new or live session of the user. */
export function useOpenRunApp(key: string) {
  return useMutation({
    mutationFn: (app: Schemas['AppOfRun']['app']) =>
      unwrap(api.POST('/pipeline-runs/{key}/apps', { ...at(key), body: { app } }))
  });
}

export function useAnswerTask(key: string) {
  return useMutation({
    mutationFn: ({ task, isApproved }: { task: string; isApproved: boolean }) =>
      unwrap(
        api.POST('/pipeline-runs/{key}/tasks/{task}/approval', {
          params: { path: { key, task } },
          body: { is_approved: isApproved }
        })
      ),
    onSettled: refresh
  });
}

export function useRenewTriggerSecret() {
  return useMutation({
    mutationFn: (key: string) =>
      unwrap(api.POST('/pipeline-triggers/{key}/secret', { ...at(key), body: {} }))
  });
}
