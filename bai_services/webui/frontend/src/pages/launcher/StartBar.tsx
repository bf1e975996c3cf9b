import { useEffect, useState } from 'react';
import { App, Button, InputNumber } from 'antd';
import { useNavigate } from '@tanstack/react-router';
import type { TFunction } from 'i18next';
import { useTranslation } from 'react-i18next';
import { startText } from '../../components/startText';
import { useLatest } from '../../components/useLatest';
import { useReadOnlyReason } from '../../components/useReadOnlyReason';
import { useLaunch, type SessionPreview } from '../../data/sessions/launch';
import { requestOf, type LaunchForm } from './form';

const MAX_COUNT = 100;
/** Id of the field with the number of sessions. */
export const COUNT_ID = 'launch-count';

interface StartBarProps {
  form: LaunchForm;
  preview: SessionPreview | undefined;
  /** Whether the preview is of the current values of the form. */
  isCurrent: boolean;
  onReview: () => void;
  /** Whether a key has asked to start the session. */
  isWanted: boolean;
  /** Called when the session starts or the user is asked, or when the problems are shown. */
  onAnswered: () => void;
}

/**
 * Bar at the bottom of the window: the button that starts the session, and the result of the
 * preview.
 */
export function StartBar(props: StartBarProps) {
  const { form, preview, isCurrent, onReview, isWanted, onAnswered } = props;
  const { t, i18n } = useTranslation();
  const { message, modal } = App.useApp();
  const navigate = useNavigate();
  const launch = useLaunch(error => void message.error(error.message));
  const [count, setCount] = useState(1);
  const readOnlyReason = useReadOnlyReason();
  const hasProblem = readOnlyReason !== undefined || (preview?.problems.length ?? 0) > 0;
  const isValid = isCurrent && preview !== undefined && !hasProblem;
  const hasFolder = (preview?.session?.mounts.length ?? 0) > 0;
  const start = () =>
    launch.mutate(
      { request: requestOf(form), count },
      {
        onSuccess: sessions => {
          const [first] = sessions;
          void navigate({
            to: '/sessions',
            search: sessions.length === 1 && first ? { session: first.id } : {},
            // *Back* must not return to the filled form, which could be submitted again.
            replace: true
          });
        }
      }
    );
  const confirm = () => {
    modal.confirm({
      title: t('launcher.no-folder-title'),
      content: t('launcher.no-folder-warning'),
      okText: t('launcher.launch', { count }),
      onOk: start
    });
  };
  const submit = hasFolder ? start : confirm;
  const answer = useLatest(() => {
    onAnswered();
    if (isValid && !launch.isPending) {
      submit();
    } else if (!isValid) {
      onReview();
    }
  });
  const isAnswerable = isWanted && isCurrent && preview !== undefined;
  useEffect(() => {
    if (isAnswerable) {
      answer();
    }
  }, [isAnswerable, answer]);
  return (
    <div className="bai-start-bar">
      {preview && (
        <Button type="link" danger={hasProblem} className="bai-start-result" onClick={onReview}>
          {readOnlyReason ?? resultText(t, i18n.language, preview)}
        </Button>
      )}
      <span className="bai-secondary bai-start-hint">{t('launcher.keys')}</span>
      <div className="bai-start-buttons">
        <InputNumber
          size="large"
          prefix="×"
          style={{ width: 88 }}
          id={COUNT_ID}
          aria-label={t('launcher.count')}
          min={1}
          max={MAX_COUNT}
          precision={0}
          value={count}
          onChange={value => setCount(value ?? 1)}
        />
        <Button
          type="primary"
          size="large"
          disabled={!isValid}
          loading={launch.isPending}
          aria-keyshortcuts="Control+Enter"
          onClick={submit}
        >
          {t('launcher.launch', { count })}
        </Button>
      </div>
    </div>
  );
}

/** The result of the preview as one sentence. */
function resultText(t: TFunction, language: string, preview: SessionPreview): string {
  if (preview.problems.length > 0) {
    return t('launcher.cannot-start', { count: preview.problems.length });
  }
  if (preview.existing_session) {
    return t('launcher.exists');
  }
  if (preview.starts_now) {
    return t('launcher.starts-now');
  }
  return preview.is_complete
    ? startText(t, preview.estimate, language)
    : t('launcher.start-unknown');
}
