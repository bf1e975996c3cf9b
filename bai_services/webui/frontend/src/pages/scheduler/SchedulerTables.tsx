import { useState, type ReactNode } from 'react';
import { InputNumber, Typography, type TableColumnsType } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { CardTable } from '../../components/CardTable';
import { personal } from '../../components/personal';
import { formatTime } from '../../components/time';
import type { Schedule, ScheduledSession } from '../../data/scheduling/schedule';
import { useChangeSession } from '../../data/sessions/sessions';
import { reasonText } from '../../i18n/reasonText';
import { MAX_PRIORITY, QueuePriority } from './QueuePriority';

/** The pending sessions in the order of the queue, with the values that determine the order. */
export function QueueTable(props: { schedule: Schedule; mayChange: boolean }) {
  const { t, i18n } = useTranslation();
  const [chosen, setChosen] = useState<readonly string[]>([]);
  // Sessions that have left the queue are no longer selected.
  const waiting = props.schedule.waiting.flatMap(({ session }) => (session ? [session.id] : []));
  const selected = chosen.filter(id => waiting.includes(id));
  const hasStanding = props.schedule.waiting.some(session => session.standing.length > 0);
  const columns: TableColumnsType<ScheduledSession> = [
    { title: t('scheduler.rank'), dataIndex: 'position', width: 70 },
    { title: t('scheduler.session'), render: (_, row) => <Name session={row} /> },
    {
      title: t('scheduler.priority'),
      width: 110,
      render: (_, row) =>
        row.session && props.mayChange ? (
          <Priority id={row.session.id} name={row.session.name} value={row.priority ?? 0} />
        ) : (
          row.priority
        )
    },
    ...(hasStanding
      ? [
          {
            title: t('scheduler.standing'),
            render: (_: unknown, row: ScheduledSession) =>
              row.standing.map(value => Math.abs(value).toFixed(3)).join(' · ')
          }
        ]
      : []),
    {
      title: t('scheduler.starts'),
      render: (_, row) =>
        row.starts_at
          ? `${formatTime(row.starts_at, i18n.language)} (${t(`certainty.${row.certainty}`)})`
          : t('why.no-estimate')
    },
    {
      title: t('scheduler.reason'),
      render: (_, row) => reasonText(i18n, { message: row.reason, coded: row.reason_coded })
    }
  ];
  return (
    <Section
      title={t('scheduler.queue')}
      shown={props.schedule.waiting.length}
      total={props.schedule.waiting_count}
    >
      {selected.length > 0 && <QueuePriority selected={selected} onDone={setChosen} />}
      <CardTable<ScheduledSession>
        className="bai-wide-table"
        size="small"
        rowKey={row => row.session?.id ?? String(row.position)}
        {...(props.mayChange && {
          rowSelection: {
            selectedRowKeys: [...selected],
            onChange: keys => setChosen(keys.map(String)),
            getCheckboxProps: row => ({
              // Sessions that the user may not see have no id.
              disabled: row.session === null,
              'aria-label': t('sessions.select', {
                name: row.session?.name ?? t('scheduler.position', { position: row.position })
              })
            }),
            getTitleCheckboxProps: () => ({ 'aria-label': t('table.select-all') })
          }
        })}
        columns={columns}
        dataSource={props.schedule.waiting}
        pagination={false}
        locale={{ emptyText: <Typography.Text>{t('scheduler.no-queue')}</Typography.Text> }}
      />
    </Section>
  );
}

/** The running sessions as a table, sorted by end. */
export function RunningTable({ schedule }: { schedule: Schedule }) {
  const { t, i18n } = useTranslation();
  const columns: TableColumnsType<ScheduledSession> = [
    { title: t('scheduler.session'), render: (_, row) => <Name session={row} /> },
    {
      title: t('scheduler.place'),
      render: (_, row) =>
        row.kernels.map((kernel, index) => (
          <div key={index}>
            {[kernel.agent_id, ...kernel.devices.map(d => `${d.device_id} ${d.amount}`)].join(', ')}
          </div>
        ))
    },
    {
      title: t('scheduler.ends'),
      render: (_, row) =>
        row.ends_at
          ? `${formatTime(row.ends_at, i18n.language)} (${t(`certainty.${row.certainty}`)})`
          : t('scheduler.no-end')
    }
  ];
  return (
    <Section
      title={t('scheduler.running')}
      shown={schedule.running.length}
      total={schedule.running_count}
    >
      <CardTable
        className="bai-wide-table"
        size="small"
        rowKey={row => row.session?.id ?? `${row.starts_at} ${row.kernels[0]?.agent_id}`}
        columns={columns}
        dataSource={schedule.running}
        pagination={false}
        locale={{ emptyText: <Typography.Text>{t('scheduler.no-running')}</Typography.Text> }}
      />
    </Section>
  );
}

function Section(props: { title: string; shown: number; total: number; children: ReactNode }) {
  const { t } = useTranslation();
  return (
    <section style={{ marginTop: 24 }}>
      <Typography.Title level={2} className="bai-card-title" style={{ marginBottom: 8 }}>
        {props.title} ({props.total})
      </Typography.Title>
      {props.shown < props.total && (
        <Typography.Paragraph type="secondary">
          {t('scheduler.first-only', { count: props.shown })}
        </Typography.Paragraph>
      )}
      {props.children}
    </section>
  );
}

function Name({ session: { session } }: { session: ScheduledSession }) {
  const { t } = useTranslation();
  return session ? (
    <>
      <Link to="/sessions" search={{ tab: 'all', session: session.id }}>
        {session.name}
      </Link>{' '}
      <Typography.Text type="secondary">
        {personal(session.owner)} · {session.project}
      </Typography.Text>
    </>
  ) : (
    <Typography.Text type="secondary">{t('scheduler.hidden')}</Typography.Text>
  );
}

function Priority({ id, name, value }: { id: string; name: string; value: number }) {
  const { t } = useTranslation();
  const change = useChangeSession(id);
  return (
    <InputNumber
      size="small"
      min={0}
      max={MAX_PRIORITY}
      defaultValue={value}
      key={value}
      disabled={change.isPending}
      changeOnWheel={false}
      status={change.error ? 'error' : ''}
      title={change.error?.message ?? ''}
      aria-label={t('scheduler.priority-of', { name })}
      onBlur={event => {
        const priority = Number(event.target.value);
        if (event.target.value !== '' && priority !== value) {
          change.mutate({ kind: 'fields', values: { priority } });
        }
      }}
      onPressEnter={event => (event.target as HTMLInputElement).blur()}
    />
  );
}
