import type { CSSProperties } from 'react';
import { Tooltip, Typography } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { personal } from '../../components/personal';
import { slotsText } from '../../components/SlotTags';
import { formatTime } from '../../components/time';
import type { Schedule, ScheduledReservation } from '../../data/scheduling/schedule';
import { rowsOf, type Bar, type Row } from './rows';
import { positionOf, RANGES, ticksOf, timeScale, type Range, type TimeScale } from './timeScale';

/** Where the bar of a session begins whose start cannot be estimated. */
const UNKNOWN_START_PERCENT = 85;

/** Timeline of agents and devices with running, reserved and waiting sessions. */
export function Timeline({ schedule, range }: { schedule: Schedule; range: Range }) {
  const { t, i18n } = useTranslation();
  const now = Date.parse(schedule.at);
  const scale = timeScale(now, range);
  const format = new Intl.DateTimeFormat(
    i18n.language,
    RANGES[range] > 24 ? { month: 'short', day: 'numeric' } : { hour: '2-digit', minute: '2-digit' }
  );
  return (
    <figure className="bai-timeline" aria-label={t('scheduler.timeline')}>
      <div className="bai-timeline-row bai-timeline-axis" aria-hidden>
        <div />
        <div className="bai-timeline-track">
          {ticksOf(scale, range).map(at => (
            <TimeLabel key={at} at={at} scale={scale} format={format} />
          ))}
        </div>
      </div>
      {rowsOf(schedule).map(row => (
        <TimelineRow key={row.key} row={row} scale={scale} now={now} />
      ))}
      <figcaption>
        {(['running', 'reserved', 'waiting', 'held'] as const).map(kind => (
          <span key={kind}>
            <span className={`bai-timeline-key bai-bar-${kind}`} /> {t(`scheduler.kind-${kind}`)}
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

/** A time on the axis of a chart. */
export function TimeLabel(props: { at: number; scale: TimeScale; format: Intl.DateTimeFormat }) {
  const style = { '--at': `${positionOf(props.at, props.scale)}%` } as CSSProperties;
  return <span style={style}>{props.format.format(props.at)}</span>;
}

function TimelineRow({ row, scale, now }: { row: Row; scale: TimeScale; now: number }) {
  const { t } = useTranslation();
  const { lane } = row;
  const place = lane ? [lane.agent_id, lane.device_id].filter(Boolean).join(' · ') : '';
  return (
    <div className="bai-timeline-row">
      <div className="bai-timeline-name">
        <Typography.Text ellipsis={{ tooltip: true }}>
          {lane
            ? lane.model || lane.device_id || lane.agent_id
            : t('scheduler.position', { position: row.bars[0]?.session.position })}
        </Typography.Text>
        {lane?.device_id && (
          <Typography.Text type="secondary" ellipsis={{ tooltip: place }}>
            {place}
          </Typography.Text>
        )}
      </div>
      <div className="bai-timeline-track">
        {row.held.map(one => (
          <HeldSpan key={one.id} reservation={one} scale={scale} />
        ))}
        <div className="bai-timeline-now" style={{ left: `${positionOf(now, scale)}%` }} />
        {row.bars.map((bar, index) => (
          <TimelineBar
            key={bar.key}
            bar={bar}
            scale={scale}
            place={{ index, count: row.bars.length }}
          />
        ))}
      </div>
    </div>
  );
}

/** The period in which an advance reservation holds an agent or a part of it, behind the bars of sessions. */
function HeldSpan(props: { reservation: ScheduledReservation; scale: TimeScale }) {
  const { t, i18n } = useTranslation();
  const { reservation: one, scale } = props;
  const left = positionOf(Date.parse(one.starts_at), scale);
  const right = positionOf(Date.parse(one.ends_at), scale);
  const text = t(one.whole_machines ? 'scheduler.held' : 'scheduler.held-part', {
    name: one.name,
    slots: slotsText(one.resources),
    project: one.project,
    start: formatTime(one.starts_at, i18n.language),
    end: formatTime(one.ends_at, i18n.language)
  });
  return (
    right > left && (
      <Tooltip title={text}>
        <span
          className={one.whole_machines ? 'bai-held' : 'bai-held bai-held-part'}
          style={{ left: `${left}%`, width: `${right - left}%` }}
          role="img"
          aria-label={text}
        />
      </Tooltip>
    )
  );
}

/** A bar. All bars of a row divide its height, because sessions that share a device overlap. */
function TimelineBar(props: {
  bar: Bar;
  scale: TimeScale;
  place: { index: number; count: number };
}) {
  const { t, i18n } = useTranslation();
  const { bar, scale, place } = props;
  const left = bar.from === undefined ? UNKNOWN_START_PERCENT : positionOf(bar.from, scale);
  const right = bar.to === undefined ? 100 : positionOf(bar.to, scale);
  if (right <= 0 || left >= 100) {
    return null;
  }
  const { session } = bar.session;
  const name = session?.name ?? t('scheduler.hidden');
  const ends = bar.session.ends_at;
  const text = [
    session ? `${name} (${personal(session.owner)})` : name,
    bar.amount,
    t(`scheduler.kind-${bar.kind}`),
    bar.session.starts_at
      ? t('scheduler.from', { time: formatTime(bar.session.starts_at, i18n.language) })
      : t('scheduler.no-start'),
    ends ? t('scheduler.until', { time: formatTime(ends, i18n.language) }) : t('scheduler.no-end')
  ]
    .filter(Boolean)
    .join(' · ');
  const style = {
    left: `${left}%`,
    width: `${right - left}%`,
    top: `${(100 * place.index) / place.count}%`,
    height: `${100 / place.count}%`
  };
  const className = `bai-bar bai-bar-${bar.kind}${bar.to === undefined ? ' bai-bar-open' : ''}`;
  return (
    <Tooltip title={text}>
      {session ? (
        <Link
          to="/sessions"
          search={{ tab: 'all', session: session.id }}
          className={className}
          style={style}
          aria-label={text}
        >
          {name}
        </Link>
      ) : (
        <span className={className} style={style} role="img" aria-label={text}>
          {name}
        </span>
      )}
    </Tooltip>
  );
}
