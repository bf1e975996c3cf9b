import { App, Button } from 'antd';
import { useTranslation } from 'react-i18next';
import {
  endingCheck,
  endKind,
  useChangeSession,
  type Session,
  type SessionChange
} from '../../data/sessions/sessions';

const HOUR = 3600;

/** Buttons that postpone or prevent the next stop of a session, as far as its rule allows it. */
export function StopActions({ session }: { session: Session }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const change = useChangeSession(session.id);
  const kind = endKind(session);
  const check = endingCheck(session);
  const addable = Math.min(session.lifetime?.addable_seconds ?? 0, HOUR);
  // Use `mutateAsync`: callbacks of `mutate` would not be called, because the buttons are removed
  // when the session no longer ends soon.
  const run = (what: SessionChange, done: string) => () =>
    void change.mutateAsync(what).then(
      () => void message.success(t(done, { checker: check?.checker })),
      (error: unknown) => void message.error((error as Error).message)
    );
  const shared = { size: 'small', loading: change.isPending } as const;
  return (
    <>
      {kind === 'idle' && (
        <Button {...shared} onClick={run({ kind: 'activity' }, 'sessions.kept-alive')}>
          {t('sessions.keep-alive')}
        </Button>
      )}
      {kind === 'lifetime' && session.ends_at !== null && addable > 0 && (
        <Button
          {...shared}
          onClick={run({ kind: 'lifetime', seconds: addable }, 'sessions.extended')}
        >
          {t('sessions.extend')}
        </Button>
      )}
      {check && (
        <Button
          {...shared}
          disabled={check.keep_alives_left === 0}
          onClick={run({ kind: 'keep-alive' }, 'sessions.checker-kept')}
        >
          {t('sessions.keep-alive-left', { count: check.keep_alives_left })}
        </Button>
      )}
      {check?.allows_exclusion && (
        <Button
          {...shared}
          onClick={run({ kind: 'exclusion', isExcluded: true }, 'sessions.checker-excluded')}
        >
          {t('sessions.checker-exclude')}
        </Button>
      )}
    </>
  );
}
