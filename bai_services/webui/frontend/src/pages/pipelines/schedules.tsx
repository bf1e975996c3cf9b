import { Flex } from 'antd';
import { Link } from '@tanstack/react-router';
import i18next from 'i18next';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../components/entities/entity';
import { formatTime } from '../../components/time';
import { UserText } from '../../components/UserText';
import type { Item } from '../../data/entities';
import type { PipelineSchedule } from '../../data/pipelines/pipelines';
import { timeZone } from '../../data/usage/reports';

const RULES = ['daily 02:00', 'mon-fri 08:00', 'sat,sun 10:00', '0 8 * * 1-5'];
const CATCH_UPS = ['skip', 'last', 'all'];

const scheduleOf = (item: Item) => item as unknown as PipelineSchedule;

/** Times at which pipelines run. */
export const SCHEDULES: Entity = {
  name: 'pipeline-schedules',
  path: '/pipeline-schedules',
  id: 'id',
  defaultSort: 'pipeline',
  refreshMillis: 60_000,
  columns: [
    { key: 'name', isSortable: true },
    {
      key: 'pipeline',
      isSortable: true,
      render: item => <UserText text={scheduleOf(item).pipeline} />
    },
    { key: 'next_starts', render: item => <NextStart schedule={scheduleOf(item)} /> },
    { key: 'start' },
    { key: 'every_minutes', isSortable: true },
    { key: 'time_zone', isSortable: true },
    { key: 'last_run_id', render: item => <LastRun schedule={scheduleOf(item)} /> },
    { key: 'is_paused', isSortable: true },
    {
      key: 'parameters',
      isOptional: true,
      render: item => <Parameters parameters={scheduleOf(item).parameters} />
    },
    { key: 'catch_up', isOptional: true },
    { key: 'last_start_at', isSortable: true, isOptional: true },
    { key: 'owner', isSortable: true, isOptional: true },
    { key: 'created_at', isSortable: true, isOptional: true }
  ],
  filters: [
    { key: 'pipeline__contains' },
    { key: 'is_paused', isFlag: true },
    { key: 'owner__contains' }
  ],
  fields: [
    {
      key: 'pipeline',
      kind: 'reference',
      of: { path: '/pipelines', name: 'name' },
      isRequired: true,
      only: 'create'
    },
    { key: 'name', kind: 'text', isRequired: true },
    { key: 'start', kind: 'suggested', choices: RULES, isNullable: true },
    { key: 'every_minutes', kind: 'number', isNullable: true },
    { key: 'time_zone', kind: 'suggested', choices: [timeZone(), 'UTC'], default: 'UTC' },
    { key: 'parameters', kind: 'json' },
    { key: 'catch_up', kind: 'choice', choices: CATCH_UPS, default: 'last' },
    { key: 'is_paused', kind: 'switch' }
  ],
  writers: ['user', 'admin', 'superadmin'],
  canCreate: true,
  canDelete: true
};

function NextStart({ schedule }: { schedule: PipelineSchedule }) {
  const [first] = schedule.next_starts;
  return first ? <span className="bai-time">{formatTime(first, i18next.language)}</span> : '–';
}

/** The last run, and the reason if the last start created no run. */
function LastRun({ schedule }: { schedule: PipelineSchedule }) {
  const { t } = useTranslation();
  const { last_run_id: run, last_message: message } = schedule;
  if (!run && !message) {
    return '–';
  }
  return (
    <Flex gap="small" wrap>
      {run && (
        <Link to="/pipelines" search={{ tab: 'runs', run }}>
          {t('pipeline-runs.run')}
        </Link>
      )}
      {message && <UserText text={message} />}
    </Flex>
  );
}

/** The parameters of the runs that a schedule or trigger creates. */
export function Parameters({ parameters }: Pick<PipelineSchedule, 'parameters'>) {
  const given = Object.entries(parameters);
  return given.length === 0 ? (
    '–'
  ) : (
    <UserText text={given.map(([name, value]) => `${name} = ${String(value)}`).join('; ')} />
  );
}
