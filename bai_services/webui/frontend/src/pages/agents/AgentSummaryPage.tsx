import { EntityPage } from '../../components/entities/EntityPage';
import { AGENT_SUMMARIES } from './agents';

/** What users may know about the agents of their resource groups. */
export function AgentSummaryPage() {
  return (
    <EntityPage path="/agent-summary" title="pages.agent-summary" entities={[AGENT_SUMMARIES]} />
  );
}
