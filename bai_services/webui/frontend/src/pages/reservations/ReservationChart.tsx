import { useState } from 'react';
import { Empty, Segmented, Skeleton, Tooltip, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { slotsText } from '../../components/SlotTags';
import { formatTime, useNow } from '../../components/time';
import { openReservationsQuery, type Reservation } from '../../data/scheduling/reservations';
import { TimeLabel } from '../scheduler/Timeline';
import { positionOf, type TimeScale } from '../scheduler/timeScale';
import { tracksOf } from './tracks';
import { replacesData } from '../../data/connection';

const DAY_MILLIS = 24 * 3_600_000;
const DAYS = [1, 7, 30, 90] as const;
const DEFAULT_DAYS = 7;
// Number of labels on the time axis. A day has one label every four hours.
const TICKS = 7;
const TICKS_OF_DAY = 6;
// Minimum height of one of several overlapping reservations.
const TRACK_PIXELS = 22;

/** The open reservations of each agent over the next days. */
export function ReservationChart() {
  const { t } = useTranslation();
  return (
    <section style={{ marginTop: 24 }}>
      <Typography.Title level={2} className="bai-card-title" style={{ marginBottom: 8 }}>
        {t('reservations.calendar')}
      </Typography.Title>
      <Calendar />
    </section>
  );
}

function Calendar() {
  const { t, i18n } = useTranslation();
  const [days, setDays] = useState<number>(DEFAULT_DAYS);
  const { data, error, refetch } = useQuery(openReservationsQuery);
  if (replacesData(error, data)) {
    return <ErrorNotice error={error} onRetry={() => void refetch()} />;
  }
  if (!data) {
    return <Skeleton active />;
  }
  const from = new Date().setHours(0, 0, 0, 0);
  const scale = { from, to: from + days * DAY_MILLIS };
  const agents = [...new Set(data.flatMap(({ agents }) => agents))].sort();
  const isDay = days === 1;
  const format = new Intl.DateTimeFormat(
    i18n.language,
    isDay ? { hour: 'numeric' } : { month: 'short', day: 'numeric' }
  );
  const count = isDay ? TICKS_OF_DAY : TICKS;
  // The label of a day is at its middle, the label of an hour at its begin.
  const ticks = Array.from(
    { length: count },
    (_, n) => from + ((n + (isDay ? 0 : 0.5)) * days * DAY_MILLIS) / count
  );
  return (
    <>
      <Segmented<number>
        value={days}
        options={DAYS.map(value => ({
          value,
          label: t('reservations.days', { count: value })
        }))}
        onChange={setDays}
        aria-label={t('reservations.range')}
        style={{ marginBottom: 12 }}
      />
      {agents.length === 0 ? (
        <Empty
          image={Empty.PRESENTED_IMAGE_SIMPLE}
          description={<Typography.Text>{t('reservations.none')}</Typography.Text>}
        />
      ) : (
        <figure className="bai-timeline" aria-label={t('reservations.calendar')}>
          <div className="bai-timeline-row bai-timeline-axis" aria-hidden>
            <div />
            <div className="bai-timeline-track">
              {ticks.map(at => (
                <TimeLabel key={at} at={at} scale={scale} format={format} />
              ))}
            </div>
          </div>
          {agents.map(agent => (
            <AgentRow
              key={agent}
              agent={agent}
              scale={scale}
              reservations={data.filter(({ agents }) => agents.includes(agent))}
            />
          ))}
          <figcaption>
            {(['approved', 'requested'] as const).map(state => (
              <span key={state}>
                <span className={`bai-timeline-key ${CLASSES[state]}`} />{' '}
                {t(`reservations.state-${state}`)}
              </span>
            ))}
          </figcaption>
        </figure>
      )}
    </>
  );
}

const CLASSES: Record<string, string> = {
  approved: 'bai-bar-held',
  requested: 'bai-bar-waiting'
};

function AgentRow(props: { agent: string; scale: TimeScale; reservations: Reservation[] }) {
  const { t, i18n } = useTranslation();
  const { scale } = props;
  const now = useNow();
  const [tracks, count] = tracksOf(props.reservations);
  return (
    <div className="bai-timeline-row">
      <div className="bai-timeline-name">
        <Typography.Text ellipsis={{ tooltip: true }}>{props.agent}</Typography.Text>
      </div>
      <div className="bai-timeline-track" style={{ minHeight: count * TRACK_PIXELS }}>
        <div className="bai-timeline-now" style={{ left: `${positionOf(now, scale)}%` }} />
        {props.reservations.map(one => {
          const left = positionOf(Date.parse(one.starts_at), scale);
          const right = positionOf(Date.parse(one.ends_at), scale);
          const text = [
            `${one.name} (${one.project})`,
            t(`reservations.state-${one.state}`),
            one.whole_machines ? t('reservations.whole-machines') : slotsText(one.resources),
            t('scheduler.from', { time: formatTime(one.starts_at, i18n.language) }),
            t('scheduler.until', { time: formatTime(one.ends_at, i18n.language) })
          ].join(' · ');
          return (
            right > left && (
              <Tooltip key={one.id} title={text}>
                <span
                  className={`bai-bar ${CLASSES[one.state] ?? ''}`}
                  style={{
                    left: `${left}%`,
                    width: `${right - left}%`,
                    top: `${((tracks.get(one) ?? 0) * 100) / count}%`,
                    height: `${100 / count}%`
                  }}
                  role="img"
                  tabIndex={0}
                  aria-label={text}
                >
                  {one.name}
                </span>
              </Tooltip>
            )
          );
        })}
      </div>
    </div>
  );
}
