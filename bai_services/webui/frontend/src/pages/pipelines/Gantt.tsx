import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { LazyChart } from '../../components/chart/LazyChart';
import type { TaskRun } from '../../data/pipelines/pipelines';

const ROW_HEIGHT = 26;
const MAX_ROWS = 100;

const labelOf = (run: TaskRun) => (run.item ? `${run.task} (${run.item})` : run.task);

/** The times of the tasks of a run: waiting for resources, and running. */
export function Gantt({ runs, now }: { runs: readonly TaskRun[]; now: number }) {
  const { t } = useTranslation();
  const option = useMemo(() => {
    const shown = runs.filter(({ queued_at }) => queued_at !== null).slice(0, MAX_ROWS);
    const millis = (text: string | null) => (text === null ? now : new Date(text).getTime());
    const begin = Math.min(...shown.map(({ queued_at }) => millis(queued_at)), now);
    const bar = (name: string, values: number[], isHidden = false) => ({
      name,
      type: 'bar',
      stack: 'time',
      data: values,
      silent: isHidden,
      itemStyle: isHidden ? { color: 'transparent' } : {}
    });
    const starts = shown.map(run => millis(run.started_at ?? run.ended_at));
    const queued = t('pipeline-runs.status-queued');
    const running = t('pipeline-runs.status-running');
    return {
      tooltip: { trigger: 'item', valueFormatter: (value: unknown) => `${Number(value)} s` },
      legend: { data: [queued, running] },
      grid: { left: 8, right: 24, top: 32, bottom: 8, containLabel: true },
      xAxis: { type: 'value', axisLabel: { formatter: '{value} s' } },
      yAxis: { type: 'category', inverse: true, data: shown.map(labelOf) },
      series: [
        bar(
          '',
          shown.map(run => seconds(millis(run.queued_at) - begin)),
          true
        ),
        bar(
          queued,
          shown.map((run, row) => seconds((starts[row] ?? now) - millis(run.queued_at)))
        ),
        bar(
          running,
          shown.map((run, row) =>
            run.started_at ? seconds(millis(run.ended_at) - (starts[row] ?? now)) : 0
          )
        )
      ],
      rows: shown.length
    };
  }, [runs, now, t]);
  const { rows, ...chart } = option;
  if (rows === 0) {
    return null;
  }
  return (
    <LazyChart option={chart} height={rows * ROW_HEIGHT + 80} label={t('pipeline-runs.gantt')} />
  );
}

const seconds = (millis: number) => Math.max(0, Math.round(millis / 100) / 10);
