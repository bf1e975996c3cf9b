import { useState } from 'react';
import { Alert, App, Button, Checkbox, Modal, Progress } from 'antd';
import { useTranslation } from 'react-i18next';
import { countText } from '../../../components/list/listSearch';
import { MAX_LIMIT } from '../../../data/allItems';
import { queries } from '../../../data/queries';
import {
  isEnded,
  sessionsQuery,
  useStopSessions,
  type Session
} from '../../../data/sessions/sessions';
import type { Selection } from './useSelection';

const MAX_SHOWN = 20;

/** A session to stop; `problem`: why the last attempt failed, undefined before any attempt. */
interface Stop {
  session: Session;
  problem?: string;
}

/**
 * Buttons that stop the selected sessions after a confirmation, and that select all sessions that
 * match the filters.
 */
export function StopSessions({ selection }: { selection: Selection }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [stops, setStops] = useState<Stop[]>([]);
  const [isOpen, setIsOpen] = useState(false);
  const [isReading, setIsReading] = useState(false);
  const { sessions, all, total } = selection;
  const selected = all && total !== undefined ? Math.min(total, MAX_LIMIT) : sessions.length;

  const read = async () =>
    all ? (await queries.query({ ...sessionsQuery(all), staleTime: 0 })).items : sessions;
  const open = async () => {
    setIsReading(true);
    try {
      const found = await read();
      setStops(found.filter(session => !isEnded(session)).map(session => ({ session })));
      setIsOpen(true);
    } catch (error) {
      void message.error((error as Error).message);
    } finally {
      setIsReading(false);
    }
  };
  const close = () => {
    setIsOpen(false);
    selection.clear();
  };

  return (
    <>
      <Button danger disabled={selected === 0} loading={isReading} onClick={() => void open()}>
        {t('sessions.stop-selected', { count: selected })}
      </Button>
      {total !== undefined && !all && (
        <Button type="link" size="small" onClick={selection.selectAll}>
          {total > MAX_LIMIT
            ? t('sessions.select-first', { limit: MAX_LIMIT, total: countText(total) })
            : t('sessions.select-matching', { count: total })}
        </Button>
      )}
      <StopDialog
        isOpen={isOpen}
        stops={stops}
        onFailed={setStops}
        onCancel={() => setIsOpen(false)}
        onDone={close}
      />
    </>
  );
}

interface StopDialogProps {
  isOpen: boolean;
  stops: readonly Stop[];
  /** Called with the sessions that could not be stopped. */
  onFailed: (stops: Stop[]) => void;
  onCancel: () => void;
  onDone: () => void;
}

/** Stops sessions, optionally by force; if some cannot be stopped, offers to try these again. */
function StopDialog({ isOpen, stops, onFailed, onCancel, onDone }: StopDialogProps) {
  const { t } = useTranslation();
  const [isForced, setIsForced] = useState(false);
  const [count, setCount] = useState(0);
  const stop = useStopSessions(isForced, setCount);
  const hasFailed = stops.some(({ problem }) => problem !== undefined);
  const run = async () => {
    setCount(0);
    const failures = await stop.mutateAsync(stops.map(({ session }) => session));
    if (failures.length === 0) {
      onDone();
    } else {
      onFailed(failures.map(({ session, error }) => ({ session, problem: error.message })));
    }
  };
  return (
    <Modal
      open={isOpen}
      onCancel={hasFailed ? onDone : onCancel}
      afterClose={() => setIsForced(false)}
      closable={!stop.isPending}
      mask={{ closable: !stop.isPending }}
      keyboard={!stop.isPending}
      cancelButtonProps={{ disabled: stop.isPending }}
      title={t('sessions.stop-title', { count: stops.length })}
      okText={t(isForced ? 'sessions.stop-by-force' : 'sessions.stop')}
      okButtonProps={{ danger: true, disabled: stops.length === 0 }}
      onOk={() => void run()}
      confirmLoading={stop.isPending}
    >
      {hasFailed ? (
        <Alert
          type="error"
          showIcon
          title={t('sessions.not-stopped', { count: stops.length })}
          style={{ marginBottom: 8 }}
        />
      ) : (
        <p>{t('sessions.stop-warning')}</p>
      )}
      <ul className="bai-stop-list">
        {stops.slice(0, MAX_SHOWN).map(({ session, problem }) => (
          <li key={session.id}>
            {session.name}
            {problem !== undefined && `: ${problem}`}
          </li>
        ))}
      </ul>
      {stops.length > MAX_SHOWN && <p>{t('data.more', { count: stops.length - MAX_SHOWN })}</p>}
      {stop.isPending && stops.length > 1 && (
        <Progress
          percent={Math.floor((100 * count) / stops.length)}
          aria-label={t('entities.progress', { count, total: stops.length })}
          format={() => t('entities.progress', { count, total: stops.length })}
        />
      )}
      <Checkbox
        checked={isForced}
        disabled={stop.isPending}
        onChange={event => setIsForced(event.target.checked)}
      >
        {t('sessions.force')}
      </Checkbox>
      {isForced && (
        <Alert
          type="warning"
          showIcon
          title={t('sessions.force-warning')}
          style={{ marginTop: 8 }}
        />
      )}
    </Modal>
  );
}
