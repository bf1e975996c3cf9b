import { EntityPage } from '../../components/entities/EntityPage';
import { Members } from './Members';
import { DOMAINS, PROJECTS } from './projects';

/** Projects with their members, and domains. */
export function ProjectsPage() {
  return (
    <EntityPage
      path="/projects"
      title="pages.projects"
      entities={[PROJECTS, DOMAINS]}
      details={(entity, item) => entity === PROJECTS && <Members project={String(item['id'])} />}
    />
  );
}
