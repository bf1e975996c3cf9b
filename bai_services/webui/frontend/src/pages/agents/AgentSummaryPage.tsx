import { EntityPage } from '../../components/entities/EntityPage';
import { AGENT_SUMMARIES } from './agents';

/** Agents in the user's resource groups, with the fields that users may see. */
export function AgentSummaryPage() {
  return (
    <EntityPage path="/agent-summary" title="pages.agent-summary" entities={[AGENT_SUMMARIES]} />
  );
}
