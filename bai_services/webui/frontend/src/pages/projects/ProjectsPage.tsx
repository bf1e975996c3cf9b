import { EntityPage } from '../../components/entities/EntityPage';
import { Members } from './Members';
import { BUDGETS } from './budgets';
import { OVERFLOW_RULES } from './overflowRules';
import { ProjectSetup } from './ProjectSetup';
import { DOMAINS, PROJECTS } from './projects';

/** Projects with their members, their budgets and overflow rules, and domains. */
export function ProjectsPage() {
  return (
    <EntityPage
      path="/projects"
      title="pages.projects"
      entities={[PROJECTS, BUDGETS, OVERFLOW_RULES, DOMAINS]}
      details={(entity, item) =>
        entity === PROJECTS && (
          <>
            <Members project={String(item['id'])} />
            <ProjectSetup project={String(item['id'])} />
          </>
        )
      }
    />
  );
}
