import { useEffect, useState } from 'react';
import { Anchor, Card, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { currentPreferences } from '../../data/preferences';
import { ErrorNotice } from '../../components/ErrorNotice';
import { optionsQuery, previewQuery } from '../../data/launch';
import { EnvironmentSection, NetworkSection } from './AdvancedSection';
import { FolderSection } from './FolderSection';
import { EMPTY, formOf, requestOf, withoutSecrets, type LaunchForm } from './form';
import { LaunchButtons } from './LaunchButtons';
import { LauncherContext } from './launcherForm';
import { PreviewPanel } from './PreviewPanel';
import { ResourceSection } from './ResourceSection';
import { Sources } from './Sources';
import { TypeSection } from './TypeSection';

const route = getRouteApi('/launch');

const SECTIONS = [
  { key: 'type', content: <TypeSection /> },
  { key: 'resources', content: <ResourceSection /> },
  { key: 'folders', content: <FolderSection /> },
  { key: 'environment', content: <EnvironmentSection /> },
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

/** The form of a new session, with a preview of its start; the URL contains the form. */
export function LauncherPage() {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [form, setForm] = useState<LaunchForm>(() =>
    formOf(search.request ?? { project: currentPreferences().project })
  );
  const settled = useSettled(form);
  const options = useQuery(
    optionsQuery(form.project || undefined, form.resource_group || undefined)
  );
  const preview = useQuery(previewQuery(requestOf(settled)));
  const isCurrent = settled === form && !preview.isPlaceholderData;

  useEffect(() => {
    const request = withoutSecrets(requestOf(settled));
    void navigate({ search: { request }, replace: true, resetScroll: false });
  }, [settled, navigate]);

  return (
    <LauncherContext
      value={{
        form,
        change: changes => setForm(old => ({ ...old, ...changes })),
        options: options.data,
        preview: preview.data
      }}
    >
      <Typography.Title level={3}>{t('pages.launch')}</Typography.Title>
      {options.error && (
        <ErrorNotice error={options.error} onRetry={() => void options.refetch()} />
      )}
      <Sources onChoose={setForm} />
      <div className="bai-launcher">
        <nav aria-label={t('launcher.sections')}>
          <Anchor
            replace
            items={SECTIONS.map(({ key }) => ({
              key,
              href: `#section-${key}`,
              title: t(`launcher.section-${key}`)
            }))}
          />
        </nav>
        <div>
          {SECTIONS.map(({ key, content }) => (
            <Card
              key={key}
              id={`section-${key}`}
              title={t(`launcher.section-${key}`)}
              style={{ marginBottom: 16 }}
            >
              {content}
            </Card>
          ))}
        </div>
        <aside aria-label={t('launcher.preview')}>
          <Card title={t('launcher.preview')}>
            {preview.error && (
              <ErrorNotice error={preview.error} onRetry={() => void preview.refetch()} />
            )}
            <PreviewPanel isCurrent={isCurrent} />
            <LaunchButtons
              form={form}
              isValid={
                isCurrent && preview.data !== undefined && preview.data.problems.length === 0
              }
              onReset={() => setForm(EMPTY)}
            />
          </Card>
        </aside>
      </div>
    </LauncherContext>
  );
}
