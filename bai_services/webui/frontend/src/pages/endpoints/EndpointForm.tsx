import { useState } from 'react';
import { Alert, Button, Checkbox, Drawer, Flex, Form, Grid, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { ApiError } from '../../data/client';
import { useChosenProject } from '../../data/accounts/project';
import {
  revisionsQuery,
  useCreateEndpoint,
  useDeploy,
  variantsQuery,
  type Endpoint
} from '../../data/serving/endpoints';
import {
  fieldOf,
  newEndpointOf,
  newRevisionOf,
  newTrialOf,
  valuesOf,
  type EndpointValues
} from './form';
import { TryButton } from './Trial';
import { GeneralFields } from './fields/GeneralFields';
import { HealthFields } from './fields/HealthFields';
import { ModelFields } from './fields/ModelFields';
import { ResourceFields } from './fields/ResourceFields';
import { RolloutFields } from './fields/RolloutFields';
import { RunFields } from './fields/RunFields';

const WIDTH = 640;
// Scroll an invalid field to the center, so that its label and its message are also visible.
const CENTER = { block: 'center' } as const;

interface EndpointFormProps {
  /** The endpoint that gets a new revision; without one, a new endpoint is created. */
  endpoint?: Endpoint;
  /** Number of the revision that provides the initial values of the form. */
  base?: number;
  onClose: () => void;
  onDone: (endpoint: Endpoint) => void;
}

/** Form of a new endpoint, or of a new revision of an endpoint. */
export function EndpointForm({ endpoint, base, onClose, onDone }: EndpointFormProps) {
  const { t } = useTranslation();
  const project = useChosenProject();
  const revisions = useQuery({
    ...revisionsQuery(endpoint?.id ?? ''),
    enabled: endpoint !== undefined
  });
  const revision = revisions.data?.find(({ number }) => number === base) ?? revisions.data?.[0];
  if (endpoint === undefined) {
    const initial = { variant: 'cmd', replicas: 1, project: project?.id };
    return <FormDrawer initial={initial} onClose={onClose} onDone={onDone} />;
  }
  if (revision === undefined) {
    return (
      <Drawer open onClose={onClose} title={t('endpoints.deploy')}>
        {revisions.error ? <ErrorNotice error={revisions.error} /> : <Skeleton active />}
      </Drawer>
    );
  }
  return (
    <FormDrawer
      endpoint={endpoint}
      initial={valuesOf(revision)}
      last={revisions.data?.[0]?.number}
      onClose={onClose}
      onDone={onDone}
    />
  );
}

interface FormDrawerProps extends Pick<EndpointFormProps, 'endpoint' | 'onClose' | 'onDone'> {
  initial: EndpointValues;
  /** Number of the newest revision. If there is a later one, the server rejects the form. */
  last?: number | undefined;
}

function FormDrawer({ endpoint, initial, last, onClose, onDone }: FormDrawerProps) {
  const { t } = useTranslation();
  const isWide = Grid.useBreakpoint().md ?? true;
  const [form] = Form.useForm<EndpointValues>();
  const [error, setError] = useState<string>();
  const [isApplied, setIsApplied] = useState(true);
  // The settings as they were when the form was opened; polling must not change them.
  const [opened] = useState(initial);
  const [openedLast] = useState(last);
  const { data: variants } = useQuery(variantsQuery);
  const create = useCreateEndpoint();
  const deploy = useDeploy(endpoint?.id ?? '');

  const deployText = isApplied ? 'endpoints.deploy-ok' : 'entities.save';
  const okText = endpoint === undefined ? 'endpoints.create-ok' : deployText;

  const valuesNow = () => {
    // Include the values of fields that are not shown, such as resources of unknown slots.
    const values = form.getFieldsValue(true) as EndpointValues;
    return { values, variant: variants?.find(({ name }) => name === values.variant) };
  };
  const submit = async () => {
    setError(undefined);
    const { values, variant } = valuesNow();
    try {
      const saved = await (endpoint === undefined
        ? create.mutateAsync(newEndpointOf(values, variant))
        : deploy.mutateAsync({
            ...newRevisionOf(values, variant, opened),
            is_applied: isApplied,
            ...(openedLast !== undefined && { last_revision: openedLast })
          }));
      onDone(saved);
    } catch (problem) {
      show(problem as Error);
    }
  };
  const show = (problem: Error) => {
    const { shown, rest } = problemsOf(problem);
    form.setFields(shown as Parameters<typeof form.setFields>[0]);
    setError(rest);
    const [first] = shown;
    if (first) {
      form.scrollToField(first.name as Parameters<typeof form.scrollToField>[0], CENTER);
    }
  };
  const readTrial = async () => {
    setError(undefined);
    const { values, variant } = valuesNow();
    try {
      // Validate only the variables: a trial needs no name.
      await form.validateFields([['environ']]);
    } catch {
      return undefined;
    }
    return newTrialOf({ ...values, project: values.project ?? endpoint?.project }, variant);
  };

  return (
    <Drawer
      open
      onClose={onClose}
      size={isWide ? WIDTH : '100%'}
      title={
        endpoint === undefined
          ? t('endpoints.create')
          : t('endpoints.deploy-title', { name: endpoint.name })
      }
      footer={
        <>
          {/* In the footer, because the form may be scrolled. */}
          {error && <Alert type="error" showIcon title={error} style={{ marginBottom: 12 }} />}
          <Flex gap="small" justify="end" align="center" wrap>
            {endpoint && (
              <Checkbox checked={isApplied} onChange={event => setIsApplied(event.target.checked)}>
                {t('endpoints.apply-now')}
              </Checkbox>
            )}
            <Button onClick={onClose}>{t('entities.cancel')}</Button>
            <TryButton read={readTrial} onError={show} />
            <Button
              type="primary"
              loading={create.isPending || deploy.isPending}
              onClick={form.submit}
            >
              {t(okText)}
            </Button>
          </Flex>
        </>
      }
    >
      <Form<EndpointValues>
        form={form}
        layout="vertical"
        scrollToFirstError={CENTER}
        initialValues={opened}
        onFinish={() => void submit()}
      >
        {endpoint === undefined && <GeneralFields />}
        <RunFields />
        <ModelFields />
        <ResourceFields />
        <HealthFields />
        <RolloutFields />
      </Form>
    </Drawer>
  );
}

interface FieldProblem {
  name: string[];
  errors: string[];
}

/** The problems that are shown at their fields; `rest`: the message, if a problem has no field. */
function problemsOf(error: Error): { shown: FieldProblem[]; rest: string | undefined } {
  const problems = error instanceof ApiError ? error.problems : [];
  const shown = problems.flatMap(({ field, problem }) => {
    const name = fieldOf(field);
    return name ? [{ name, errors: [problem] }] : [];
  });
  const isComplete = shown.length > 0 && shown.length === problems.length;
  return { shown, rest: isComplete ? undefined : error.message };
}
