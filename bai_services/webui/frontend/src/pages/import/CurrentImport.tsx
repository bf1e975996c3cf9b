import { Alert, App, Button, Card, Flex, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { UserText } from '../../components/UserText';
import { useReadOnlyReason } from '../../components/useReadOnlyReason';
import { useChosenProject } from '../../data/accounts/project';
import { hasEnded, importQuery, type FolderImport } from '../../data/imports';
import { optionsQuery, useLaunch, type SessionRequest } from '../../data/sessions/launch';
import { isEnded, serverUrl, sessionQuery } from '../../data/sessions/sessions';
import { readLauncherSearch } from '../launcher/search';
import { ImportState } from './imports';

const SESSION_REFRESH_MILLIS = 2_000;
const SKIPPED = ['links', 'submodules', 'lfs'] as const;

interface CurrentImportProps {
  id: string;
  sessionId: string | undefined;
  onStarted: (sessionId: string) => void;
  onClose: () => void;
}

/** The progress of an import, then the button that starts a session with its files. */
export function CurrentImport({ id, sessionId, onStarted, onClose }: CurrentImportProps) {
  const { t } = useTranslation();
  const { data: made, error } = useQuery(importQuery(id));
  return (
    <Card style={{ marginBottom: 16, maxWidth: 880 }}>
      {error && <ErrorNotice error={error} />}
      {!made && !error && <Skeleton active />}
      {made && (
        <Flex vertical gap="middle">
          <div style={{ overflowWrap: 'anywhere' }}>
            <UserText text={made.source} /> → <UserText text={made.folder} />
          </div>
          <ImportState made={made} />
          <Skipped made={made} />
          {made.status === 'done' && made.folder_id && !sessionId && (
            <StartSession folder={made.folder_id} onStarted={onStarted} />
          )}
          {sessionId && <StartedSession id={sessionId} path={made.open_path} />}
        </Flex>
      )}
      {(!made || hasEnded(made)) && (
        <Button type="link" onClick={onClose} style={{ marginTop: 12, paddingInline: 0 }}>
          {t('folder-imports.another')}
        </Button>
      )}
    </Card>
  );
}

function Skipped({ made }: { made: FolderImport }) {
  const { t } = useTranslation();
  const found = SKIPPED.filter(key => made.skipped[key]);
  return (
    found.length > 0 && (
      <Alert
        type="warning"
        showIcon
        title={t('folder-imports.skipped')}
        description={found.map(key => (
          <div key={key}>{t(`folder-imports.skipped-${key}`, { number: made.skipped[key] })}</div>
        ))}
      />
    )
  );
}

interface StartSessionProps {
  folder: string;
  onStarted: (sessionId: string) => void;
}

/** Starts a session with the first preset that could start now, or opens the launcher. */
function StartSession({ folder, onStarted }: StartSessionProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const project = useChosenProject();
  const { data } = useQuery(optionsQuery(project?.id));
  const launch = useLaunch(error => void message.error(error.message));
  const readOnlyReason = useReadOnlyReason();
  const preset = data?.presets.find(({ allocatable }) => allocatable);
  const request = {
    type: 'interactive',
    ...(project ? { project: project.id } : {}),
    ...(preset ? { preset: preset.name } : {}),
    mounts: [{ vfolder: folder }]
  } as SessionRequest;
  const start = () =>
    launch.mutate(
      { request, count: 1 },
      { onSuccess: ([session]) => session && onStarted(session.id) }
    );
  return (
    <Flex wrap gap="small" align="center">
      <Button
        type="primary"
        loading={launch.isPending}
        disabled={!data || readOnlyReason !== undefined}
        onClick={start}
      >
        {t('folder-imports.start')}
      </Button>
      <Link to="/launch" search={readLauncherSearch({ request })}>
        {t('folder-imports.launcher')}
      </Link>
      {readOnlyReason && <span>{readOnlyReason}</span>}
    </Flex>
  );
}

function StartedSession({ id, path }: { id: string; path: string }) {
  const { t } = useTranslation();
  const { data: session, error } = useQuery({
    ...sessionQuery(id),
    refetchInterval: ({ state }) =>
      state.data && (serverUrl(state.data) || isEnded(state.data)) ? false : SESSION_REFRESH_MILLIS
  });
  if (error) {
    return <ErrorNotice error={error} />;
  }
  const url = session && serverUrl(session);
  return (
    <Flex wrap gap="small" align="center">
      <Link to="/sessions" search={{ session: id }}>
        {session?.name ?? id}
      </Link>
      {session && t(`status.${session.status}`, session.status)}
      {url && (
        <Button type="primary" href={`${url}${path}`} target="_blank" rel="noopener">
          {t('folder-imports.open')}
        </Button>
      )}
    </Flex>
  );
}
