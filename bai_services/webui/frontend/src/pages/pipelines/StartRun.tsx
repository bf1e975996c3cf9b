import { useState } from 'react';
import { Form, Input, Modal, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { AcceptFiles } from './AcceptFiles';
import { needsAcceptance } from './acceptance';
import { pipelineQuery, useRunPipeline, type Pipeline } from '../../data/pipelines/pipelines';

type Parameter = Pipeline['parameters'][number];

interface StartRunProps {
  pipelineId: string;
  onClose: () => void;
  onDone: (runId: string) => void;
}

/** Dialog with the parameters of a new run. */
export function StartRun({ pipelineId, onClose, onDone }: StartRunProps) {
  const { t } = useTranslation();
  const [form] = Form.useForm<Record<string, string>>();
  const { data, error } = useQuery(pipelineQuery(pipelineId));
  const run = useRunPipeline(pipelineId);
  // Whether users with a lower role can change the files, and whether the user accepts them.
  const [isAsked, setAsked] = useState(false);
  const [accepts, setAccepts] = useState(false);
  const submit = (values: Record<string, string | undefined>) => {
    const given = Object.entries(values).filter(
      (entry): entry is [string, string] => entry[1] !== undefined
    );
    run.mutate(
      { parameters: Object.fromEntries(given), accepts_files: accepts },
      { onSuccess: made => onDone(made.id) }
    );
  };
  const isRefused = needsAcceptance(run.error);
  // The question remains while the answer is sent.
  if (isRefused && !isAsked) {
    setAsked(true);
  }
  const failure = isRefused ? error : (run.error ?? error);
  return (
    <Modal
      open
      onCancel={onClose}
      title={t('pipelines.start-title', { name: data?.name ?? '' })}
      okText={t('pipelines.start')}
      cancelText={t('entities.cancel')}
      onOk={form.submit}
      confirmLoading={run.isPending}
      okButtonProps={{ disabled: isAsked && !accepts }}
    >
      {isAsked && <AcceptFiles folder={data?.folder} isAccepted={accepts} onChange={setAccepts} />}
      {failure && <ErrorNotice error={failure} />}
      {!data && !error && <Skeleton active />}
      {data && (
        <Form form={form} layout="vertical" onFinish={submit} autoComplete="off">
          {data.parameters.length === 0 && t('pipelines.no-parameters')}
          {data.parameters.map(parameter => (
            <Form.Item
              key={parameter.name}
              name={parameter.name}
              label={parameter.name}
              extra={[parameter.description, t(`pipelines.type-${parameter.type}`)]
                .filter(Boolean)
                .join(' · ')}
              initialValue={textOf(parameter)}
              rules={[
                {
                  required: parameter.default === null,
                  message: t('entities.required')
                }
              ]}
            >
              <Input spellCheck={false} />
            </Form.Item>
          ))}
        </Form>
      )}
    </Modal>
  );
}

const textOf = ({ default: value }: Parameter) => {
  if (value === null) {
    return undefined;
  }
  return Array.isArray(value) ? value.map(String).join(', ') : String(value);
};
