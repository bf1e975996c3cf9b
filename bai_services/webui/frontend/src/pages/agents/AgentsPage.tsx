import { Tabs } from 'antd';
import { useTranslation } from 'react-i18next';
import { EntityPage } from '../../components/entities/EntityPage';
import type { Item } from '../../data/entities';
import { AGENTS } from './agents';
import { AgentSessions } from './AgentSessions';
import { Devices } from './Devices';
import { MachineLoad } from './MachineLoad';

/** The machines that run sessions, with their load, devices and sessions. */
export function AgentsPage() {
  return (
    <EntityPage
      path="/agents"
      title="pages.agents"
      entities={[AGENTS]}
      details={(_, agent) => <AgentDetails agent={agent} />}
    />
  );
}

function AgentDetails({ agent }: { agent: Item }) {
  const { t } = useTranslation();
  return (
    <Tabs
      style={{ marginTop: 12 }}
      items={[
        { key: 'devices', label: t('agents.devices'), children: <Devices agent={agent} /> },
        {
          key: 'sessions',
          label: t('agents.tab-sessions'),
          children: <AgentSessions agent={String(agent['id'])} />
        },
        { key: 'load', label: t('agents.tab-load'), children: <MachineLoad agent={agent} /> }
      ]}
    />
  );
}
