import { useEffect, useRef, useState, type KeyboardEvent } from 'react';
import { Alert, Card, Flex, Skeleton, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { useIsReadOnly } from '../../data/accounts/me';
import { currentPreferences } from '../../data/accounts/preferences';
import { ErrorNotice } from '../../components/ErrorNotice';
import { NoProject } from '../../components/NoProject';
import { PageTitle } from '../../components/PageTitle';
import { optionsQuery, previewQuery } from '../../data/sessions/launch';
import { FolderSection } from './FolderSection';
import { EMPTY, formOf, requestOf, withoutSecrets, type LaunchForm } from './form';
import { LauncherContext } from './launcherContext';
import { NetworkSection } from './NetworkSection';
import { PreviewPanel } from './PreviewPanel';
import { RequestActions } from './RequestActions';
import { ResourceSection } from './ResourceSection';
import { RecentSessions, Sources } from './Sources';
import { COUNT_ID, StartBar } from './StartBar';
import { showStep, StepButtons, StepList } from './StepList';
import { sectionId, type Step } from './steps';
import { submits } from './submitKey';
import { TypeSection } from './TypeSection';

const route = getRouteApi('/launch');

const SECTIONS = [
  { key: 'type', content: <TypeSection /> },
  { key: 'resources', content: <ResourceSection /> },
  { key: 'folders', content: <FolderSection /> },
  { key: 'network', content: <NetworkSection /> }
] as const;

// Debounce interval: the URL and the preview change only after the user has stopped typing or
// dragging.
const SETTLE_MILLIS = 400;

/** Return the value after it has not changed for the debounce interval. */
function useSettled<T>(value: T): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(value), SETTLE_MILLIS);
    return () => window.clearTimeout(timer);
  }, [value]);
  return settled;
}

/** The form of a new session, or why the user may not create one. */
export function LauncherPage() {
  const { t } = useTranslation();
  const mayOnlyRead = useIsReadOnly();
  if (mayOnlyRead === undefined) {
    return <Skeleton active />;
  }
  return mayOnlyRead ? (
    <>
      <PageTitle>{t('pages.launch')}</PageTitle>
      <Alert type="info" showIcon title={t('launcher.read-only')} />
    </>
  ) : (
    <Launcher />
  );
}

/** The form of a new session, with a preview of its start; the URL has the form without secrets. */
function Launcher() {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [form, setForm] = useState<LaunchForm>(() =>
    formOf(search.request ?? { project: currentPreferences().project })
  );
  const [step, setStep] = useState<Step>('type');
  const goTo = (chosen: Step) => {
    setStep(chosen);
    showStep(chosen);
  };
  // A template or recent session fills in all fields, so the next step is the review.
  const fillIn = (filled: LaunchForm) => {
    setForm(filled);
    goTo('review');
  };
  // Whether a key has asked to start the session; the start waits for the preview of this form.
  const [startsForm, setStartsForm] = useState<LaunchForm>();
  const page = useRef<HTMLDivElement>(null);
  const settled = useSettled(form);
  const options = useQuery(optionsQuery(form.project, form.resource_group, form.owner));
  const preview = useQuery(previewQuery(requestOf(settled)));
  const isCurrent = settled === form && !preview.isPlaceholderData;

  useEffect(() => {
    const request = withoutSecrets(requestOf(settled));
    void navigate({ search: { request }, replace: true, resetScroll: false });
  }, [settled, navigate]);

  const onKeyDown = (event: KeyboardEvent) => {
    const target = event.target as HTMLElement;
    // React also reports the keys that are pressed in dialogs of the page.
    if (!page.current?.contains(target)) {
      return;
    }
    const pressed = {
      key: event.key,
      ctrlKey: event.ctrlKey,
      metaKey: event.metaKey,
      isRepeated: event.repeat,
      isComposing: event.nativeEvent.isComposing,
      isChoosing: target.getAttribute('aria-expanded') === 'true',
      isInLastStep: target.id === sectionId('review') || target.id === COUNT_ID
    };
    if (submits(pressed)) {
      event.preventDefault();
      setStartsForm(form);
    }
  };

  if (options.data?.projects.length === 0 && !form.owner) {
    return (
      <>
        <PageTitle>{t('pages.launch')}</PageTitle>
        <NoProject />
      </>
    );
  }
  return (
    <LauncherContext
      value={{
        form,
        change: changes => setForm(old => ({ ...old, ...changes })),
        options: options.data,
        preview: preview.data
      }}
    >
      <div ref={page} onKeyDown={onKeyDown}>
        <Flex wrap gap="small" align="center" style={{ marginBottom: 12 }}>
          <Typography.Title level={3} style={{ margin: 0, flex: 1 }}>
            {t('pages.launch')}
          </Typography.Title>
          <RecentSessions onChoose={fillIn} />
        </Flex>
        {options.error && (
          <ErrorNotice error={options.error} onRetry={() => void options.refetch()} />
        )}
        <Sources onChoose={fillIn} />
        <div className="bai-launcher">
          <div>
            {SECTIONS.map(({ key, content }) => (
              <Card
                key={key}
                id={sectionId(key)}
                tabIndex={-1}
                className="bai-step"
                onFocusCapture={() => setStep(key)}
                title={t(`launcher.section-${key}`)}
                style={{ marginBottom: 16 }}
              >
                {content}
              </Card>
            ))}
            <StepButtons current={step} onChoose={goTo} onReset={() => setForm(EMPTY)} />
          </div>
          <div className="bai-launcher-side">
            <StepList current={step} onChoose={goTo} />
            <Card
              id={sectionId('review')}
              role="complementary"
              aria-label={t('launcher.preview')}
              tabIndex={-1}
              className="bai-step"
              title={t('launcher.preview')}
            >
              {preview.error && (
                <ErrorNotice error={preview.error} onRetry={() => void preview.refetch()} />
              )}
              <PreviewPanel isCurrent={isCurrent} />
              <RequestActions form={form} />
            </Card>
          </div>
        </div>
        <StartBar
          form={form}
          preview={preview.data}
          isCurrent={isCurrent}
          onReview={() => goTo('review')}
          isWanted={startsForm === form}
          onAnswered={() => setStartsForm(undefined)}
        />
      </div>
    </LauncherContext>
  );
}
