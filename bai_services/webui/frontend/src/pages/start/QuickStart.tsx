import { App, Button, Flex } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { NoProject } from '../../components/NoProject';
import { SlotTags } from '../../components/SlotTags';
import { useReadOnlyReason } from '../../components/useReadOnlyReason';
import { optionsQuery, useLaunch, type SessionRequest } from '../../data/sessions/launch';
import { useChosenProject } from '../../data/accounts/project';
import type { Session } from '../../data/sessions/sessions';
import { requestOfSession } from '../launcher/form';

/**
 * Starts a session like the last one, or opens the launcher if secret variables are needed. If
 * there is no last session, starts a recommended one.
 */
export function QuickStart({ last }: { last: Session | undefined }) {
  const { t } = useTranslation();
  if (!last) {
    return <Recommended />;
  }
  const request = requestOfSession(last);
  return (
    <>
      <p>{t('start.like', { name: last.name })}</p>
      <SlotTags slots={last.requested} />
      <p className="bai-cut">{last.image}</p>
      {last.secret_environ.length > 0 ? (
        // Open the launcher, because the values of secret variables have to be entered again.
        <Link to="/launch" search={{ request }}>
          <Button type="primary">{t('start.again')}</Button>
        </Link>
      ) : (
        <LaunchButton request={request} text={t('start.again')} />
      )}
    </>
  );
}

/** The first preset that could start now, or the defaults of the project. */
function Recommended() {
  const { t } = useTranslation();
  const project = useChosenProject();
  const { data } = useQuery(optionsQuery(project?.id));
  if (data?.projects.length === 0) {
    return <NoProject />;
  }
  const preset = data?.presets.find(({ allocatable }) => allocatable);
  return (
    <>
      <p>{t('start.recommended')}</p>
      {preset && <SlotTags slots={preset.resources} />}
      <p>{preset?.name}</p>
      <LaunchButton
        request={{
          type: 'interactive',
          ...(project ? { project: project.id } : {}),
          ...(preset ? { preset: preset.name } : {})
        }}
        text={t('start.now')}
      />
    </>
  );
}

function LaunchButton({ request, text }: { request: SessionRequest; text: string }) {
  const { message } = App.useApp();
  const navigate = useNavigate();
  const launch = useLaunch();
  const readOnlyReason = useReadOnlyReason();
  // Use `mutateAsync`: the new session replaces this button, so callbacks of `mutate` would not be
  // called.
  const start = async () => {
    try {
      const [session] = await launch.mutateAsync({ request, count: 1 });
      await navigate({ to: '/sessions', search: session ? { session: session.id } : {} });
    } catch (error) {
      void message.error((error as Error).message);
    }
  };
  return (
    <Flex wrap gap="small" align="center">
      <Button
        type="primary"
        loading={launch.isPending}
        disabled={readOnlyReason !== undefined}
        onClick={() => void start()}
      >
        {text}
      </Button>
      {readOnlyReason && <span>{readOnlyReason}</span>}
    </Flex>
  );
}
