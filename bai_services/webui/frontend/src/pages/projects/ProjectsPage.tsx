import { EntityPage } from '../../components/entities/EntityPage';
import { Members } from './Members';
import { BUDGETS } from './budgets';
import { DOMAINS, PROJECTS } from './projects';

/** Projects with their members, their budgets, and domains. */
export function ProjectsPage() {
  return (
    <EntityPage
      path="/projects"
      title="pages.projects"
      entities={[PROJECTS, BUDGETS, DOMAINS]}
      details={(entity, item) => entity === PROJECTS && <Members project={String(item['id'])} />}
    />
  );
}
