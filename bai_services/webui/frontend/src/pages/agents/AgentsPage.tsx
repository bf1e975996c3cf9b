import { EntityPage } from '../../components/entities/EntityPage';
import { AGENTS } from './agents';
import { Devices } from './Devices';

/** The machines that run sessions, with their devices. */
export function AgentsPage() {
  return (
    <EntityPage
      path="/agents"
      title="pages.agents"
      entities={[AGENTS]}
      details={(_, agent) => <Devices agent={String(agent['id'])} />}
    />
  );
}
