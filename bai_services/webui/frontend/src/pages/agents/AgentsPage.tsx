import { App, Tabs } from 'antd';
import { useTranslation } from 'react-i18next';
import { EntityPage } from '../../components/entities/EntityPage';
import type { Item } from '../../data/entities';
import { AGENTS } from './agents';
import { AgentSessions } from './AgentSessions';
import { Devices } from './Devices';
import { INVITATIONS } from './invitations';
import { JoinCommand } from './JoinCommand';
import { MachineLoad } from './MachineLoad';
import { NetworkAlert, StorageAlerts } from './StorageProblems';

/** The machines that run sessions, and invitations for adding machines. */
export function AgentsPage() {
  const { t } = useTranslation();
  const { modal } = App.useApp();
  return (
    <EntityPage
      path="/agents"
      title="pages.agents"
      entities={[AGENTS, INVITATIONS]}
      details={(entity, agent) => entity === AGENTS && <AgentDetails agent={agent} />}
      onCreated={(_, invitation) =>
        void modal.success({
          title: t('agent-invitations.created'),
          width: 640,
          content: <JoinCommand token={String(invitation['token'])} />
        })
      }
    />
  );
}

function AgentDetails({ agent }: { agent: Item }) {
  const { t } = useTranslation();
  return (
    <>
      <StorageAlerts agent={agent} />
      <NetworkAlert agent={agent} />
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
    </>
  );
}
