import { Drawer, Grid, Skeleton, Tabs } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { useIsReadOnly } from '../../../data/accounts/me';
import { isServing } from '../../../data/serving/chat/chats';
import { endpointQuery } from '../../../data/serving/endpoints';
import { useRights } from '../rights';
import type { EndpointsSearch } from '../search';
import type { Endpoint } from '../../../data/serving/endpoints';
import { ActionLog } from './ActionLog';
import { EndpointActions } from './EndpointActions';
import { Overview } from './Overview';
import { Replicas } from './Replicas';
import { Revisions } from './Revisions';
import { Scaling } from './scaling/Scaling';
import { Tokens } from './Tokens';
import { Usage } from './Usage';

const WIDTH = 1000;

export type ChangeSearch = (changes: Record<string, unknown>) => void;

interface EndpointDrawerProps {
  search: EndpointsSearch;
  onChange: ChangeSearch;
  onClose: () => void;
}

/** Drawer with one endpoint: its state, replicas, revisions and tokens, and its actions. */
export function EndpointDrawer({ search, onChange, onClose }: EndpointDrawerProps) {
  const { t } = useTranslation();
  const isWide = Grid.useBreakpoint().md ?? true;
  const { item } = search;
  const {
    data: endpoint,
    error,
    refetch
  } = useQuery({ ...endpointQuery(item ?? ''), enabled: item !== undefined });
  // Compare with id and name, because the URL may contain either.
  const shown = endpoint && [endpoint.id, endpoint.name].includes(item ?? '') && endpoint;
  return (
    <Drawer
      open={item !== undefined}
      onClose={onClose}
      size={isWide ? WIDTH : '100%'}
      destroyOnHidden
      title={shown ? shown.name : t('endpoints.endpoint')}
    >
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {!shown && !error && <Skeleton active />}
      {shown && !error && (
        <>
          <TestInChat endpoint={shown} />
          <EndpointActions endpoint={shown} onChange={onChange} onClose={onClose} />
          <EndpointTabs key={shown.id} endpoint={shown} search={search} onChange={onChange} />
        </>
      )}
    </Drawer>
  );
}

/** Link to the chat page with an endpoint that serves. */
function TestInChat({ endpoint }: { endpoint: Endpoint }) {
  const { t } = useTranslation();
  const isReadOnly = useIsReadOnly();
  return (
    isReadOnly === false &&
    isServing(endpoint) && (
      <p>
        <Link to="/chat" search={{ endpoint: endpoint.name }}>
          {t('chat.test')}
        </Link>
      </p>
    )
  );
}

export interface EndpointTabProps {
  endpoint: Endpoint;
  search: EndpointsSearch;
  onChange: ChangeSearch;
}

function EndpointTabs({ endpoint, search, onChange }: EndpointTabProps) {
  const { t } = useTranslation();
  const { isManager } = useRights(endpoint);
  const tabs = {
    overview: <Overview endpoint={endpoint} onChange={onChange} />,
    replicas: <Replicas endpoint={endpoint} search={search} onChange={onChange} />,
    scaling: <Scaling endpoint={endpoint} search={search} onChange={onChange} />,
    revisions: <Revisions endpoint={endpoint} search={search} onChange={onChange} />,
    // Members of the project may not read the tokens and the actions.
    ...(isManager && {
      tokens: <Tokens endpoint={endpoint} search={search} onChange={onChange} />,
      usage: <Usage endpoint={endpoint} search={search} onChange={onChange} />,
      log: <ActionLog endpoint={endpoint} search={search} onChange={onChange} />
    })
  };
  return (
    <Tabs
      activeKey={search.panel ?? 'overview'}
      onChange={panel => onChange({ panel, list: undefined })}
      destroyOnHidden
      items={Object.entries(tabs).map(([key, children]) => ({
        key,
        label: t(`endpoints.tab-${key}`),
        children
      }))}
    />
  );
}
